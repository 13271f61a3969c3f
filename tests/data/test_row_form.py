"""The form of rows and the kind of text: what `prepare` records of both, and what the rows then hold."""

import json
from dataclasses import replace

import pytest

from arcmask.data import PrepareConfig, open_prepared, open_tokenizer, prepare, read_index
from arcmask.data.packing import describe_job
from arcmask.errors import ArcmaskError

END = 50256


@pytest.fixture(scope="module")
def enclosed(folder_of_texts, tmp_path_factory):
    """The speeches of the fixture `prepared`, in rows that end-of-text encloses."""
    out = str(tmp_path_factory.mktemp("enclosed") / "speeches")
    settings = {"length": 64, "shard_rows": 50, "holdout": "every:10", "row_form": "enclosed"}
    config = PrepareConfig(corpus=str(folder_of_texts), out=out, **settings)
    return config, prepare(config)


def test_an_enclosed_row_is_a_piece_of_the_stream_between_two_end_of_text(enclosed, prepared, speeches):
    config, index = enclosed
    tokenizer = open_tokenizer("gpt2")
    for split in ("train", "validation"):
        mine = [text for i, text in enumerate(speeches) if (i % 10 == 9) == (split == "validation")]
        stream = [token for text in mine for token in [*tokenizer.encode(text), END]]
        count = len(stream) // 62
        rows = open_prepared(config.out, split).rows(range(count))
        assert rows.tolist() == [[END, *stream[62 * i : 62 * (i + 1)], END] for i in range(count)]
        record = index.splits[split]
        assert (record.rows, record.tokens, record.dropped_tokens) == (count, 64 * count, len(stream) - 62 * count)
    stream_rows = open_prepared(prepared[0]).rows(range(20))
    assert not (stream_rows[:, 0] == END).all()


def test_the_form_is_in_the_index_and_in_its_hash(enclosed, prepared):
    config, index = enclosed
    assert (index.settings["row_form"], prepared[1].settings["row_form"]) == ("enclosed", "stream")
    assert index.hash != prepared[1].hash
    assert "rows of 64 tokens, enclosed" in index.describe()[0]
    stored = json.loads((open_prepared(config.out).folder / "index.json").read_text())
    stored["settings"]["row_form"] = "stream"
    with pytest.raises(ArcmaskError, match="was changed since it was written"):
        forge(open_prepared(config.out).folder, stored)


def forge(folder, fields):
    """Read an index with other fields, as if its file had been edited; the file is put back."""
    path = folder / "index.json"
    content = path.read_bytes()
    try:
        path.write_text(json.dumps(fields))
        return read_index(folder)
    finally:
        path.write_bytes(content)


def test_another_form_is_refused_and_a_folder_keeps_its_own(enclosed):
    config, index = enclosed
    settings = vars(config) | {"row_form": None}
    assert prepare(PrepareConfig(**settings)) == index
    with pytest.raises(ArcmaskError, match="row_form is 'enclosed' there and 'stream' here"):
        prepare(PrepareConfig(**settings | {"row_form": "stream"}))


@pytest.mark.parametrize("tokenizer", ["gpt2", "bpe:300"])
def test_a_tokenizer_with_end_of_text_can_enclose_rows_but_does_not_by_itself(tokenizer, folder_of_texts, tmp_path):
    shared = {"corpus": str(folder_of_texts), "tokenizer": tokenizer, "length": 32}
    plain = prepare(PrepareConfig(out=str(tmp_path / "plain"), **shared))
    assert plain.settings["row_form"] == "stream"
    config = PrepareConfig(out=str(tmp_path / "out"), row_form="enclosed", **shared)
    assert "rows of 32 tokens in" in describe_job(config)
    assert "between two end-of-text tokens" in describe_job(config)
    index = prepare(config)
    rows = open_prepared(config.out).rows(range(index.splits["train"].rows))
    assert (rows[:, [0, -1]] == index.end_id).all()


def test_what_cannot_enclose_a_row_is_a_sentence(folder_of_texts, tmp_path):
    for change, message in (
        ({"tokenizer": "text8"}, r"the tokenizer text8 has neither \[CLS\] and \[SEP\] nor end-of-text"),
        ({"length": 2}, "length is 2, but a row with end-of-text needs at least 3 tokens"),
    ):
        settings = {"corpus": str(folder_of_texts), "out": str(tmp_path / "out"), "row_form": "enclosed"}
        with pytest.raises(ArcmaskError, match=message):
            prepare(PrepareConfig(**settings | change))
    assert not list(tmp_path.iterdir())


def test_the_kind_of_text_is_recorded_and_not_its_place(speeches, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"text": text}) + "\n" for text in speeches]
        (tmp_path / name / "copy.jsonl").write_text("".join(lines))
    shared = {"tokenizer": "text8", "length": 64, "holdout": "last:4", "kind": "openwebtext"}
    one, other = (
        prepare(PrepareConfig(corpus=str(tmp_path / name / "copy.jsonl"), out=str(tmp_path / f"{name}.out"), **shared))
        for name in ("here", "there")
    )
    assert one.settings["kind"] == "openwebtext"
    assert one.hash == other.hash
    assert str(tmp_path) not in json.dumps(one.settings)
    settings = shared | {"corpus": str(tmp_path / "here" / "copy.jsonl"), "out": str(tmp_path / "here.out")}
    with pytest.raises(ArcmaskError, match="kind is 'openwebtext' there and None here"):
        prepare(PrepareConfig(**settings | {"kind": None}))


def test_a_folder_of_an_earlier_version_has_streams_of_the_kind_that_is_asked_for(folder_of_texts, tmp_path):
    config = PrepareConfig(corpus=str(folder_of_texts), out=str(tmp_path / "out"), tokenizer="text8", length=64)
    index = prepare(config)
    earlier = {name: value for name, value in index.settings.items() if name not in ("kind", "row_form")}
    (tmp_path / "out" / "index.json").write_bytes(replace(index, settings=earlier).to_bytes())
    assert prepare(config).splits == index.splits
    assert prepare(PrepareConfig(**vars(config) | {"kind": "mine"})).splits == index.splits
    assert "stream" in read_index(tmp_path / "out").describe()[0]
