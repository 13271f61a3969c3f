"""One document per row: what is written, what is read, prompts and responses, and resuming."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import arcmask
from arcmask.data import PrepareConfig, TensorRows, open_prepared, open_tokenizer, prepare, read_index
from arcmask.data.packing import describe_job
from arcmask.data.prepared import Batches
from arcmask.data.split_writer import SplitWriter
from arcmask.errors import ArcmaskError
from arcmask.rows import PaddedRows, attention_mask_of, counts_of

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"]


def write_lines(path: Path, lines: list[dict]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6))) for _ in range(60)]


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory) -> Path:
    return write_lines(tmp_path_factory.mktemp("lines") / "texts.jsonl", [{"text": text} for text in texts])


def config(corpus: Path, out: Path, **changes) -> PrepareConfig:
    settings = {"tokenizer": "text8", "length": 20, "holdout": "every:5", "pack": "none", "shard_rows": 7}
    return PrepareConfig(corpus=str(corpus), out=str(out), **settings | changes)


def test_each_document_is_a_row_padded_or_cut_off(corpus, texts, tmp_path):
    index = prepare(config(corpus, tmp_path / "out"))
    train, held_out = (open_prepared(tmp_path / "out", split) for split in ("train", "validation"))
    assert (len(train), len(held_out)) == (48, 12)
    tokenizer = open_tokenizer("text8")
    for split, numbers in ((train, [i for i in range(60) if i % 5 != 4]), (held_out, range(4, 60, 5))):
        rows = split.rows(range(len(split)))
        assert isinstance(rows, PaddedRows)
        expected = [tokenizer.encode(texts[number] + " ") for number in numbers]
        assert rows.tolist() == [ids[:20] for ids in expected]
        assert split.record.tokens == sum(len(ids[:20]) for ids in expected)
        assert split.record.dropped_tokens == sum(len(ids[20:]) for ids in expected) > 0
        assert np.array_equal(split.counts(range(len(split))), rows.lengths.numpy())
        assert rows.tokens.shape == (len(split), 20)
        assert bool((rows.tokens[~rows.attention_mask] == 0).all())
    assert train.is_padded
    assert train.frequencies.sum() == train.record.tokens
    assert (index.format, index.pad_id, index.settings["pack"]) == (2, 0, "none")
    assert "rows of one document and up to 20 tokens" in index.describe()[0]
    assert "tokens were cut off" in index.describe()[1]
    assert prepare(config(corpus, tmp_path / "out")).hash == index.hash
    with pytest.raises(ArcmaskError, match="pack"):
        prepare(config(corpus, tmp_path / "out", pack="stream"))


def test_a_stream_is_written_as_before(corpus, tmp_path):
    index = prepare(config(corpus, tmp_path / "out", pack="stream"))
    assert (index.format, index.pad_id, "pack" in index.settings) == (1, None, False)
    assert "pad_id" not in json.loads((tmp_path / "out" / "index.json").read_text())
    assert isinstance(open_prepared(tmp_path / "out").rows([0]), torch.Tensor)


def test_with_a_tokenizer_that_has_an_end_documents_end_with_it(corpus, texts, tmp_path):
    prepare(config(corpus, tmp_path / "out", tokenizer="gpt2", holdout="none"))
    rows = open_prepared(tmp_path / "out").rows(range(60))
    gpt2 = open_tokenizer("gpt2")
    assert rows.tolist() == [[*gpt2.encode(text), gpt2.end_id] for text in texts]
    assert bool((rows.tokens[~rows.attention_mask] == gpt2.pad_id).all())


def test_an_interrupted_preparation_resumes_to_the_same_folder(corpus, tmp_path, monkeypatch):
    whole = prepare(config(corpus, tmp_path / "whole"))
    monkeypatch.setattr("arcmask.data.packing._CHUNK", 200)
    append, calls = SplitWriter._append, []

    def failing(writer, rows):
        calls.append(1)
        if len(calls) == 7:
            raise OSError(28, "No space left on device")
        append(writer, rows)

    monkeypatch.setattr("arcmask.data.packing._RECORD_EVERY", 100)
    monkeypatch.setattr(SplitWriter, "_append", failing)
    with pytest.raises(ArcmaskError, match="stopped"):
        prepare(config(corpus, tmp_path / "parts"))
    monkeypatch.setattr(SplitWriter, "_append", append)
    assert "a document in each" in describe_job(config(corpus, tmp_path / "parts"))
    assert prepare(config(corpus, tmp_path / "parts")).hash == whole.hash


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    lines = [{"prompt": f"what {'x' * (i % 4)} ", "response": f"a cat {i % 3 * 'sat '}"} for i in range(20)]
    return write_lines(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", lines)


def test_of_a_prompt_and_its_response_only_the_response_counts(pairs, tmp_path):
    prepare(config(pairs, tmp_path / "out", length=30))
    rows = open_prepared(tmp_path / "out").rows(range(16))
    tokenizer = open_tokenizer("text8")
    lines = [json.loads(line) for number, line in enumerate(pairs.read_text().splitlines()) if number % 5 != 4]
    for i, line in enumerate(lines):
        prompt, response = tokenizer.encode(line["prompt"]), tokenizer.encode(line["response"].strip() + " ")
        assert rows.tolist()[i] == [*prompt, *response]
        assert int(rows.prompts[i]) == len(prompt)
        assert int(counts_of(rows)[i]) == len(response)
    record = open_prepared(tmp_path / "out").record
    assert record.tokens == record.text_bytes == int(counts_of(rows).sum())


def test_prompts_that_do_not_fit_are_an_error(pairs, tmp_path):
    with pytest.raises(ArcmaskError, match="has prompts and responses, which need --pack none"):
        prepare(config(pairs, tmp_path / "out", pack="stream"))
    with pytest.raises(
        ArcmaskError, match=r"document 1 of .* has a prompt of 7 tokens, but a row has 7; give --length 8"
    ):
        prepare(config(pairs, tmp_path / "out", length=7))
    bad = write_lines(tmp_path / "bad.jsonl", [{"prompt": "a", "response": 3}] * 20)
    with pytest.raises(ArcmaskError, match="line 1, response has no text but a value of type int"):
        prepare(config(bad, tmp_path / "out"))
    lacking = write_lines(tmp_path / "lacking.jsonl", [{"prompt": "a"}] * 20)
    with pytest.raises(ArcmaskError, match="line 1, lacks the key 'text'; it has 'prompt'"):
        prepare(config(lacking, tmp_path / "out"))
    blank = write_lines(tmp_path / "blank.jsonl", [{"text": " "}] * 20)
    with pytest.raises(ArcmaskError, match=r"the train documents of .* have no text"):
        prepare(config(blank, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()
    with pytest.raises(ArcmaskError, match="unknown pack 'non'; did you mean 'none'"):
        config(pairs, tmp_path / "out", pack="non")


def test_damaged_lengths_are_an_error(corpus, tmp_path):
    prepare(config(corpus, tmp_path / "out"))
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    path = tmp_path / "out" / index["splits"]["train"]["shards"][0]["name"]
    rows = np.fromfile(path, dtype="<u2").reshape(-1, 22)
    rows[2, 0] = 21
    opened = open_prepared(tmp_path / "out")
    rows.tofile(path)
    with pytest.raises(ArcmaskError, match="row 2, has 21 tokens, 0 of them a prompt; prepare the corpus again"):
        opened.rows([1, 2])


def test_batches_know_how_many_tokens_they_count(corpus, tmp_path):
    prepare(config(corpus, tmp_path / "out"))
    opened = open_prepared(tmp_path / "out")
    whole = Batches(opened, batch_size=6, seed=1)
    parts = [Batches(opened, batch_size=6, seed=1, rank=rank, world=2) for rank in range(2)]
    assert whole.tokens(3) == int(whole.batch(3).lengths.sum()) == sum(int(p.batch(3).lengths.sum()) for p in parts)
    assert parts[1].tokens(3) == whole.tokens(3)


def test_lists_of_different_lengths_are_rows_in_memory():
    rows = TensorRows([[1, 2, 3], [4], [0, 1]], mask_id=0 + 9)
    assert rows.is_padded
    assert rows.length == 3
    assert rows.rows([1, 2]).tolist() == [[4], [0, 1]]
    assert rows.counts([0, 1]).tolist() == [3, 1]
    assert rows.frequencies.tolist() == [1, 2, 1, 1, 1, 0, 0, 0, 0, 0]
    assert int(TensorRows([[1, 2], [3]], mask_id=0).rows([1]).tokens[0, 1]) == 1  # padding is never the mask
    other = TensorRows(PaddedRows.of([[1, 2, 3], [4], [0, 1]], prompts=[1, 0, 0]), mask_id=9)
    assert other.source != rows.source
    for bad in ([[1, 2], []], [[1, 2], [3.5]], [[1, 2], 3], [[1], [-1, 2]]):
        with pytest.raises(ArcmaskError):
            TensorRows(bad, mask_id=9)


def test_padded_rows_behave_like_a_tensor_of_rows():
    rows = PaddedRows.of([[5, 6, 7], [8], [9, 10]], prompts=[1, 0, 0])
    assert rows.shape == (3, 3)
    assert [part.tolist() for part in rows.split(2)] == [[[5, 6, 7], [8]], [[9, 10]]]
    assert rows[1:].tolist() == [[8], [9, 10]]
    assert rows[torch.tensor([2, 0])].prompts.tolist() == [0, 1]
    assert rows.flatten().tolist() == [5, 6, 7, 8, 9, 10]
    assert rows.counted.tolist() == [[False, True, True], [True, False, False], [True, True, False]]
    assert attention_mask_of(rows[:1]) is None
    assert attention_mask_of(rows).sum() == 6


def test_the_command_prints_what_was_written(corpus, tmp_path, capsys):
    from arcmask.cli import main

    arguments = ["--tokenizer", "text8", "--length", "20", "--pack", "none", "--holdout", "every:5"]
    main(["prepare", str(corpus), str(tmp_path / "out"), *arguments])
    assert "rows of one document" in capsys.readouterr().out
    assert read_index(tmp_path / "out").is_padded
    rows = arcmask.prepare(["the cat", "a mat"] * 20, tmp_path / "again", tokenizer="text8", length=9, pack="none")
    assert rows.rows([0, 1]).lengths.tolist() == [8, 6]


TOKENS = torch.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("lengths", "prompts", "message"),
    [
        ([3, 4], [0, 0], "row 1 of padded rows has 4 tokens, 0 of them a prompt, but must have 1 to 3 tokens"),
        ([0, 3], [0, 0], "row 0 of padded rows has 0 tokens"),
        ([3, 2], [0, 2], "row 1 of padded rows has 2 tokens, 2 of them a prompt, but .* and fewer in its prompt"),
        ([3, 2], [-1, 0], "row 0 of padded rows has 3 tokens, -1 of them a prompt"),
        ([3, 2], [0], r"padded rows need .* but have tokens \(2, 3\), lengths \(2,\), prompts \(1,\)"),
        ([3], [0, 0], r"lengths \(1,\), prompts \(2,\)"),
        ([3, 2], 0, r"prompts \(\)"),
    ],
)
def test_padded_rows_whose_numbers_do_not_fit_are_an_error(lengths, prompts, message):
    with pytest.raises(ArcmaskError, match=message):
        PaddedRows(TOKENS, torch.tensor(lengths), torch.tensor(prompts))
    if len(lengths) == 2 and lengths[0] == 3 and lengths[1] < 4:
        with pytest.raises(ArcmaskError, match=message):
            PaddedRows.of([[5, 6, 7], [8, 9]], prompts=prompts)


def test_padded_rows_are_tensors_of_whole_numbers():
    with pytest.raises(ArcmaskError, match="lengths of padded rows are a list, but must be a tensor"):
        PaddedRows(TOKENS, [3, 2], torch.zeros(2, dtype=torch.long))
    with pytest.raises(
        ArcmaskError, match="lengths of padded rows must be whole numbers, but they are of type float32"
    ):
        TensorRows(PaddedRows(TOKENS, torch.tensor([3.0, 2.0]), torch.zeros(2, dtype=torch.long)))
    whole = PaddedRows(TOKENS, torch.tensor([3, 2]), torch.tensor([2, 0]))
    assert len(whole[:0]) == 0  # none of them is wrong
    assert TensorRows(whole).counts([0, 1]).tolist() == [1, 2]
