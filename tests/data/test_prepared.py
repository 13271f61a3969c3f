"""An opened corpus: rows by number, no read of the data, and a check against the model."""

import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from arcmask.data import Index, open_prepared
from arcmask.data.index import Shard, Split
from arcmask.errors import ArcmaskError


def test_rows_come_from_every_shard_in_the_order_asked_for(prepared):
    out, index = prepared
    corpus = open_prepared(out)
    names = [shard.name for shard in index.splits["train"].shards]
    tokens = np.concatenate([np.fromfile(out / name, dtype="<u2") for name in names]).reshape(-1, 64).astype(np.int64)
    assert len(corpus) == len(tokens) > 100
    wanted = [len(corpus) - 1, 0, 50, 49, 50, 101]
    found = corpus.rows(wanted)
    assert found.dtype == torch.long
    assert found.tolist() == tokens[wanted].tolist()
    assert corpus.rows(torch.tensor(wanted)).equal(found)
    assert corpus.rows([]).shape == (0, 64)
    assert corpus.frequencies.sum() == tokens.size


def test_a_copy_for_another_process_is_a_path_and_not_the_data(prepared):
    corpus = open_prepared(prepared[0], "validation")
    content = pickle.dumps(corpus)
    assert len(content) < 1000
    assert pickle.loads(content).rows([0, 3]).equal(corpus.rows([0, 3]))


def huge(folder: Path, rows: int, length: int) -> Path:
    """A prepared folder whose one shard has no content on the disk: gigabytes of zeros."""
    split = Split(
        rows=rows,
        tokens=rows * length,
        dropped_tokens=0,
        documents=1,
        text_bytes=1,
        shards=(Shard(name="train-00000.bin", rows=rows, sha256="0"),),
    )
    settings = {"shard_rows": rows, "splits": {"train": split}, "length": length, "dtype": "uint16"}
    tokenizer = {"tokenizer": "gpt2", "tokenizer_files": {}, "vocab_size": 50258, "mask_id": 50257, "end_id": 50256}
    index = Index(format=1, settings={}, frequencies_sha256="0", **settings, **tokenizer)
    (folder / "index.json").write_bytes(index.to_bytes())
    with (folder / "train-00000.bin").open("wb") as file:
        file.truncate(rows * length * 2)
    return folder


def test_opening_reads_the_index_and_nothing_of_the_data(tmp_path):
    folder = huge(tmp_path, rows=1 << 22, length=1024)
    open_prepared(folder)  # whatever is imported late is imported now
    before, faults = read_so_far(), resource.getrusage(resource.RUSAGE_SELF)
    corpus = open_prepared(folder)
    # What the system was asked to read, and the pages that were touched: little more than index.json.
    assert read_so_far() - before < 10 * (folder / "index.json").stat().st_size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults.ru_minflt < 2000
    assert len(corpus) == 1 << 22
    assert corpus.rows([(1 << 22) - 1]).sum() == 0


def read_so_far() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 50257}, r"has 50258 token ids \(gpt2\), but the model knows 50257"),
        ({"mask_id": 103}, r"has the mask id 50257 \(gpt2\), but the model's is 103"),
        ({"max_length": 63}, "has rows of 64 tokens, but the model takes 63 at most"),
    ],
)
def test_a_model_that_does_not_fit_is_an_error(prepared, change, message):
    corpus = open_prepared(prepared[0])
    fits = {"vocab_size": 50258, "mask_id": 50257, "max_length": 64}
    corpus.check_fits(**fits)
    corpus.check_fits(**fits | {"max_length": None, "vocab_size": 50304})
    with pytest.raises(ArcmaskError, match=message):
        corpus.check_fits(**fits | change)


@pytest.mark.parametrize("wanted", [[-1], [0, 10**6]])
def test_a_row_that_is_not_there_is_an_error(prepared, wanted):
    with pytest.raises(ArcmaskError, match="rows run from 0 to"):
        open_prepared(prepared[0]).rows(wanted)


def test_a_folder_that_was_not_prepared_or_was_damaged_is_an_error(tmp_path):
    with pytest.raises(ArcmaskError, match=r"is not a prepared corpus: it has no index.json"):
        open_prepared(tmp_path / "nowhere")
    folder = huge(tmp_path, rows=4, length=8)
    assert len(open_prepared(folder)) == 4
    with pytest.raises(ArcmaskError, match="unknown split 'test'; choose one of: train"):
        open_prepared(folder, "test")
    index = (folder / "index.json").read_text()
    for before, after, message in [
        ('"mask_id": 50257', '"mask_id": 50256', "was changed since it was written"),
        ('"format": 1', '"format": 2', "has the format 2, but this version of arcmask reads 1"),
        ("{", "", "is damaged; prepare the corpus again"),
    ]:
        (folder / "index.json").write_text(index.replace(before, after))
        with pytest.raises(ArcmaskError, match=message):
            open_prepared(folder)
    (folder / "index.json").write_text(index)
    (folder / "train-00000.bin").write_bytes(b"12")
    with pytest.raises(ArcmaskError, match=r"train-00000.bin' has 2 bytes where 64 are recorded; prepare"):
        open_prepared(folder)
    (folder / "train-00000.bin").unlink()
    with pytest.raises(ArcmaskError, match=r"train-00000.bin' is missing; prepare"):
        open_prepared(folder)
