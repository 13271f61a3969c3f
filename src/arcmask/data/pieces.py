"""What single tokens stand for, as bytes: a token may be part of a character, and only its neighbours complete it.

The bytes of a sequence's tokens, joined and read as UTF-8, are the text that the tokenizer decodes the sequence to.
(Decoders that write no space before the first word are the exception: joined bytes begin with that space.)
"""

import re
from collections.abc import Iterable

import tokenizers as rust
from transformers import PreTrainedTokenizerFast

from arcmask.data.tokenizers import Tokenizer


def token_bytes(tokenizer: Tokenizer, ids: Iterable[int]) -> dict[int, bytes]:
    """The bytes of each id; none for an id that the tokenizer does not know."""
    byte_level = isinstance(tokenizer.inner, PreTrainedTokenizerFast) and isinstance(
        tokenizer.inner.backend_tokenizer.decoder, rust.decoders.ByteLevel
    )
    find = _byte_level_bytes if byte_level else _decoded_bytes
    return {token: find(tokenizer, token) for token in ids}


def _byte_level_alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes: printable ones themselves, others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_level_alphabet()


def _byte_level_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    name = _name(tokenizer, token)
    # Special tokens may have characters that are not in the alphabet; those are shown by their names.
    return bytes(_BYTES[c] for c in name) if all(c in _BYTES for c in name) else name.encode()


def _decoded_bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """By what the token adds behind another one: some decoders put a space between words, or take the first away."""
    name = _name(tokenizer, token)
    if not name:
        return b""
    fallback = re.fullmatch(r"<0x([0-9A-F]{2})>", name)  # how SentencePiece writes a byte
    if fallback:
        return bytes.fromhex(fallback[1])
    before = tokenizer.encode("a")
    return tokenizer.decode([*before, token]).removeprefix(tokenizer.decode(before)).encode()


def _name(tokenizer: Tokenizer, token: int) -> str:
    name = tokenizer.inner.convert_ids_to_tokens(token) if token < tokenizer.size else None
    return name if isinstance(name, str) else ""
