"""The bytes of single tokens. A token may be part of a character that only its neighbours complete.

The bytes of a sequence's tokens, joined and read as UTF-8, are the text that the tokenizer decodes the sequence to.
Decoders that write no space before the first word are the exception: the joined bytes begin with that space.
"""

import re
from collections.abc import Iterable

import tokenizers as rust
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from arcmask.data.tokenizers import Tokenizer

# The characters by which byte-level vocabularies write bytes.
_BYTES = {character: byte for byte, character in bytes_to_unicode().items()}


def token_bytes(tokenizer: Tokenizer, ids: Iterable[int]) -> dict[int, bytes]:
    """Return the bytes of each id; none for an id that the tokenizer does not know."""
    inner = tokenizer.inner
    is_byte_level = isinstance(inner, PreTrainedTokenizerFast) and isinstance(
        inner.backend_tokenizer.decoder, rust.decoders.ByteLevel
    )
    return {token: _bytes(tokenizer, token, is_byte_level) for token in ids}


def _bytes(tokenizer: Tokenizer, token: int, is_byte_level: bool) -> bytes:
    name = tokenizer.inner.convert_ids_to_tokens(token) if token < tokenizer.size else None
    if not isinstance(name, str) or not name:
        return b""
    if is_byte_level:
        # Special tokens may have characters outside the alphabet; those are shown by their names.
        return bytes(_BYTES[c] for c in name) if _BYTES.keys() >= set(name) else name.encode()
    if fallback := re.fullmatch(r"<0x([0-9A-F]{2})>", name):  # how SentencePiece writes a byte
        return bytes.fromhex(fallback[1])
    # What the token adds behind another one: some decoders put a space between words, or drop the first space.
    before = tokenizer.encode("a")
    return tokenizer.decode([*before, token]).removeprefix(tokenizer.decode(before)).encode()
