"""Reading samples and references: every form, and lines that cannot be read named by file and number."""

import json

import numpy as np
import pytest

from arcmask.data import PrepareConfig, open_prepared, open_tokenizer, prepare
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference, read_samples
from arcmask.evaluation.texts import words_of


def test_samples_are_read_from_json_lines_text_lines_and_a_folder(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one", "tokens": [1, 2]}\n\n{"text": "", "tokens": []}\n')
    found = read_samples(str(tmp_path / "a.jsonl"))
    assert (found.texts, found.token_lists) == (["one", ""], [[1, 2], []])
    (tmp_path / "b.txt").write_bytes("één\r\n\ntwo".encode())
    found = read_samples(str(tmp_path / "b.txt"))
    assert (found.texts, found.token_lists) == (["één", "", "two"], None)
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "2.txt").write_text("second\nof two lines\n")
    (folder / "1.txt").write_text("first")
    assert read_samples(str(folder)).texts == ["first", "second\nof two lines\n"]


def test_samples_that_several_processes_appended_are_read_in_the_order_of_their_index(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [{"index": index, "text": str(index), "tokens": [index]} for index in (1, 3, 0, 2)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_samples(str(path)).texts == ["0", "1", "2", "3"]
    assert read_samples(str(path)).token_lists == [[0], [1], [2], [3]]


def test_tokens_without_a_text_are_decoded_if_there_is_a_tokenizer(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": null, "tokens": [3, 1, 20]}\n')
    assert read_samples(str(path), tokenizer=open_tokenizer("text8")).texts == ["cat"]
    with pytest.raises(ArcmaskError, match=r"a\.jsonl, line 1, has no \"text\""):
        read_samples(str(path))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{not json", "is not JSON"),
        (b"[1]", 'has no "text"'),
        (b'{"text": 5}', 'has no "text"'),
        (b'{"text": "a", "tokens": ["b"]}', 'has "tokens" that are not a list of numbers'),
        (b'{"text": "\xff"}', "is not UTF-8"),
    ],
)
def test_an_unreadable_line_is_named_and_nothing_or_the_rest_is_read(tmp_path, line, complaint):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'{"text": "good"}\n' + line + b'\n{"text": "also good"}\n')
    with pytest.raises(ArcmaskError) as caught:
        read_samples(str(path))
    assert str(caught.value) == f"{path}, line 2, {complaint}"
    with pytest.warns(UserWarning, match=r"line 2, .*; it is left out"):
        found = read_samples(str(path), skip_bad_lines=True)
    assert found.texts == ["good", "also good"]
    assert found.skipped == [f"{path}, line 2, {complaint}"]


def test_a_file_that_is_not_there_or_holds_nothing_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for name, complaint in (("none.txt", "there is no file"), ("empty.txt", "holds no samples")):
        with pytest.raises(ArcmaskError, match=complaint):
            read_samples(str(tmp_path / name))


def test_words_are_runs_of_letters_in_lower_case():
    assert words_of("Don't stop, naïve 3rd_Way<|endoftext|>over") == ["don't", "stop", "naïve", "rd", "way", "over"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> str:
    """Rows of 16 letters, which cut most words; held-out documents have words of their own."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(20):
        kind = "heldout" if number % 5 == 4 else "training"
        (folder / f"{number:02d}.txt").write_text(f"{kind} remarkable sentences follow one another steadily " * 5)
    out = str(folder / "prepared")
    prepare(PrepareConfig(corpus=str(folder), out=out, tokenizer="text8", length=16, holdout="every:5"))
    return out


def test_a_prepared_folders_words_are_those_of_both_splits_uncut(prepared):
    words = Reference(prepared).words()
    expected = {"heldout", "training", "remarkable", "sentences", "follow", "one", "another", "steadily"}
    assert words.words == expected
    assert words.source == f"{prepared} (train and validation)"


def test_rows_between_end_of_text_have_the_words_of_the_stream(tmp_path):
    (tmp_path / "words.txt").write_text("constitution representatives amendment government " * 60)
    settings = {"corpus": str(tmp_path / "words.txt"), "tokenizer": "bpe:270", "length": 16, "holdout": "none"}
    for form in ("stream", "enclosed"):
        prepare(PrepareConfig(out=str(tmp_path / form), row_form=form, **settings))
    words = {form: Reference(str(tmp_path / form)).words().words for form in ("stream", "enclosed")}
    assert words["enclosed"] <= words["stream"] == {"constitution", "representatives", "amendment", "government"}


def test_a_prepared_folders_texts_are_held_out_rows_each_once(prepared):
    reference, corpus = Reference(prepared), open_prepared(prepared, "validation")
    everything = [corpus.tokenizer().decode(row) for row in corpus.rows(np.arange(len(corpus))).tolist()]
    assert reference.texts(10_000, seed=0) == everything
    few = reference.texts(7, seed=0)
    assert len(few) == 7
    assert reference.texts(7, seed=0) == few != reference.texts(7, seed=1)
    assert reference.tokenizer().name == "text8"


def test_the_words_of_padded_rows_are_those_of_each_document_and_its_texts_have_no_padding(tmp_path):
    texts = [f"{word} remark" for word in ("first", "second", "third", "fourth")]  # the last words of rows are cut off
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = str(tmp_path / "prepared")
    source = str(tmp_path / "texts.jsonl")
    prepare(PrepareConfig(corpus=source, out=out, tokenizer="text8", length=12, holdout="every:2", pack="none"))
    reference = Reference(out)
    assert reference.words().words == {"first", "second", "third", "fourth", "remark", "remar"}
    assert [text.strip() for text in reference.texts(4, seed=0)] == ["second remar", "fourth remar"]


def test_a_file_can_be_a_reference(tmp_path):
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("A b.", "c D")))
    reference = Reference(str(tmp_path / "r.jsonl"))
    assert reference.words().words == {"a", "b", "c", "d"}
    assert sorted(reference.texts(5, seed=0)) == ["A b.", "c D"]
    assert reference.tokenizer() is None
