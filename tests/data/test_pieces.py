"""Tokens as bytes: joined, they are the text that the tokenizer decodes."""

import pytest
import tokenizers as rust
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from arcmask.data import open_tokenizer, train_bpe
from arcmask.data.pieces import token_bytes

GPT2 = open_tokenizer("gpt2")
TEXT = "naïve “quotes” 日本語 😀\n\n\tend<|endoftext|> [MASK]"


@pytest.mark.parametrize(
    "tokenizer",
    [GPT2, open_tokenizer("text8"), train_bpe(["some text to merge, some more text"], 262)],
    ids=lambda tokenizer: tokenizer.name,
)
def test_joined_bytes_are_the_decoded_text(tokenizer):
    ids = tokenizer.encode(TEXT)
    pieces = token_bytes(tokenizer, ids)
    assert b"".join(pieces[token] for token in ids).decode() == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, GPT2.size - 1), max_size=20))
def test_any_ids_decode_as_their_joined_bytes_do(ids):
    pieces = token_bytes(GPT2, ids)
    assert b"".join(pieces[token] for token in ids).decode(errors="replace") == GPT2.decode(ids)


def test_a_token_that_is_part_of_a_character_keeps_its_bytes():
    first, second = GPT2.encode("😀")
    assert token_bytes(GPT2, [first, second]) == {first: b"\xf0\x9f\x98", second: b"\x80"}


def test_an_id_that_no_token_has_is_nothing():
    assert token_bytes(GPT2, [GPT2.size + 5]) == {GPT2.size + 5: b""}


def test_a_decoder_that_joins_words_gives_them_their_spaces(tmp_path):
    names = ["a", "walk", "##ing", "tree", "[MASK]", "[UNK]"]
    inner = rust.Tokenizer(rust.models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer, inner.decoder = rust.pre_tokenizers.Whitespace(), rust.decoders.WordPiece(cleanup=False)
    PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", unk_token="[UNK]").save_pretrained(tmp_path)
    tokenizer = open_tokenizer(tmp_path)
    assert token_bytes(tokenizer, [1, 2, 3]) == {1: b" walk", 2: b"ing", 3: b" tree"}


def test_a_byte_of_sentencepiece_is_a_byte(tmp_path):
    inner = rust.Tokenizer(rust.models.BPE({"a": 0, "<0xE2>": 1, "[MASK]": 2}, []))
    inner.decoder = rust.decoders.Sequence([rust.decoders.ByteFallback(), rust.decoders.Fuse()])
    PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]").save_pretrained(tmp_path)
    assert token_bytes(open_tokenizer(tmp_path), [0, 1]) == {0: b"a", 1: b"\xe2"}
