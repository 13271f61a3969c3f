"""An opened corpus: rows by number, no read of the data, a check against the model, and batches in a fixed order."""

import json
import pickle
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arcmask.data import Batches, Index, open_prepared
from arcmask.data.prepared import Shard, Split, shuffled
from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, sha256


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


def test_spread_rows_are_evenly_apart_and_other_seeds_have_other_rows(prepared):
    corpus = open_prepared(prepared[0])
    size = len(corpus)
    for seed in (0, 1, 7, 2**62):
        assert corpus.spread(seed=seed).tolist() == list(range(size)), "all rows are all rows, whatever the seed"
        assert corpus.spread(10 * size, seed).tolist() == list(range(size))
        chosen = corpus.spread(20, seed)
        assert 0 <= chosen[0] < size / 20
        assert chosen[-1] < size
        assert set(np.diff(chosen)) <= {size // 20, size // 20 + 1}
    assert corpus.spread(20).tolist() == [i * size // 20 for i in range(20)]
    several = [set(corpus.spread(size // 12, seed).tolist()) for seed in (1, 2, 3, 4, 5)]
    assert len(set.union(*several)) == 5 * (size // 12), "five seeds share no row"


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
    with pytest.raises(ArcmaskError, match=r"it does not exist; make it with: arcmask prepare CORPUS .*nowhere"):
        open_prepared(tmp_path / "nowhere")
    with pytest.raises(ArcmaskError, match=r"is not a prepared corpus: it has no index.json"):
        open_prepared(tmp_path)
    (tmp_path / "my.txt").write_text("not yet")
    with pytest.raises(ArcmaskError, match=r"prepare it with: arcmask prepare .*my.txt FOLDER"):
        open_prepared(tmp_path / "my.txt")
    folder = huge(tmp_path, rows=4, length=8)
    assert len(open_prepared(folder)) == 4
    with pytest.raises(ArcmaskError, match="unknown split 'test'; choose one of: train"):
        open_prepared(folder, "test")
    index = (folder / "index.json").read_text()
    for before, after, message in [
        ('"mask_id": 50257', '"mask_id": 50256', "was changed since it was written"),
        ('"format": 1', '"format": 3', "has the format 3, but this version of arcmask reads 1 and 2"),
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


def copy_of(folder: Path, place: Path) -> Path:
    return Path(shutil.copytree(folder, place / "copy"))


def test_what_was_changed_in_a_prepared_folder_is_named(prepared, tmp_path):
    folder = copy_of(prepared[0], tmp_path)
    corpus = open_prepared(folder)
    assert corpus.frequencies.sum() == corpus.record.tokens
    assert corpus.tokenizer().size == 50258
    for name in ("train-00001.bin", "frequencies.npy", "tokenizer/tokenizer.json"):
        path = folder / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(ArcmaskError, match=f"{name}.* was changed since it was written; prepare the corpus again"):
            open_prepared(folder).frequencies, corpus.tokenizer()
        shutil.copy2(prepared[0] / name, path)
    assert len(open_prepared(folder).frequencies) == 50258


def test_a_token_id_beyond_the_vocabulary_is_named(tmp_path):
    """Folders of earlier versions have no sampled hash, by which opening would notice."""
    folder = huge(tmp_path, rows=4, length=8)
    with (folder / "train-00000.bin").open("r+b") as file:
        file.seek(2 * (8 * 2 + 3))
        file.write((60000).to_bytes(2, "little"))
    corpus = open_prepared(folder)
    assert corpus.rows([0, 1, 3]).sum() == 0
    with pytest.raises(ArcmaskError, match=r"train-00000\.bin, row 2, has the token id 60000 of 50258; prepare"):
        corpus.rows([3, 2])


@pytest.mark.parametrize("value", [None, [], "x", -1, {"a": 1}])
@pytest.mark.parametrize("key", ["splits", "settings", "sampled", "source", "dtype", "shard_rows", "length"])
def test_an_index_of_another_shape_is_a_sentence(prepared, tmp_path, key, value):
    """Also one whose hash fits: the hash finds accidents, and anyone can compute it."""
    folder = copy_of(prepared[0], tmp_path)
    fields = json.loads((folder / "index.json").read_text()) | {key: value}
    del fields["hash"]
    digest = sha256(json_bytes({name: part for name, part in fields.items() if name not in ("sampled", "source")}))
    (folder / "index.json").write_bytes(json_bytes(fields | {"hash": digest}))
    try:
        open_prepared(folder).rows([0])
    except ArcmaskError:
        return
    assert key in ("settings", "source", "sampled")


class Numbers:
    """A corpus whose row number n is (n, n)."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def rows(self, indices: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(indices).unsqueeze(1).expand(-1, 2)


def permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    return shuffled(np.arange(count), count, seed, np.full(count, epoch))


SEEDS = st.integers(-(2**63), 2**64)


@given(count=st.integers(1, 3000), seed=SEEDS, epoch=st.integers(0, 1000))
def test_an_epoch_is_a_permutation_of_the_rows(count, seed, epoch):
    assert sorted(permutation(count, seed, epoch).tolist()) == list(range(count))


@given(count=st.integers(1, 60), batch_size=st.integers(1, 50), seed=SEEDS)
def test_no_row_is_lost_or_repeated_within_an_epoch_though_batches_straddle_them(count, batch_size, seed):
    batches = Batches(Numbers(count), batch_size=batch_size, seed=seed)
    steps = -(-3 * count // batch_size)
    stream = torch.cat([batches.batch(step) for step in range(steps)])[:, 0].tolist()
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(count=st.integers(1, 10**9), step=st.integers(0, 10**6), share=st.integers(1, 8), world=st.integers(1, 4))
def test_the_ranks_shares_are_the_rows_of_the_single_batch_in_turn(count, step, share, world):
    settings = {"batch_size": share * world, "seed": 3}
    whole = Batches(Numbers(count), **settings).batch(step)
    shares = [Batches(Numbers(count), **settings, rank=rank, world=world).batch(step) for rank in range(world)]
    assert all(len(part) == share for part in shares)
    assert torch.stack(shares, dim=1).flatten(0, 1).equal(whole)


def test_a_batch_depends_on_seed_and_step_alone():
    first, second = (Batches(Numbers(1000), batch_size=16, seed=5) for _ in range(2))
    expected = [first.batch(step) for step in range(200)]
    assert all(second.batch(step).equal(expected[step]) for step in (199, 3, 120, 3))


def test_the_order_is_the_one_of_the_first_release():
    """Runs that are resumed with a later version must see the same rows."""
    assert Batches(Numbers(1000), batch_size=6, seed=0).indices(0).tolist() == [428, 477, 759, 753, 571, 528]
    assert Batches(Numbers(1000), batch_size=6, seed=0).indices(10**6).tolist() == [10, 216, 88, 85, 724, 68]


def test_seeds_and_epochs_differ():
    orders = {tuple(permutation(500, seed, epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


@pytest.mark.parametrize("count", [2, 3, 5, 16, 17, 40])
def test_every_row_is_as_likely_as_any_other_at_every_place(count):
    trials = 6000
    places, epochs = np.tile(np.arange(count), trials), np.repeat(np.arange(trials), count)
    found = shuffled(places, count, 11, epochs).reshape(trials, count)
    seen = np.stack([np.bincount(found[:, place], minlength=count) for place in range(count)])
    expected = trials / count
    # Six standard deviations of a binomial count.
    assert np.abs(seen - expected).max() < 6 * np.sqrt(expected * (1 - 1 / count))


def test_neighbours_are_not_kept_together():
    order = permutation(10_000, 1, 0)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(np.arange(10_000), order)[0, 1]) < 0.05


def test_batches_of_a_prepared_corpus_are_its_rows(prepared):
    corpus = open_prepared(prepared[0])
    batches = Batches(corpus, batch_size=8, seed=1)
    assert batches.batch(2).equal(corpus.rows(batches.indices(2)))
    assert batches.batch(0).shape == (8, 64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "the batch size is 0, but must be at least 1"),
        ({"batch_size": 10, "world": 4}, "the batch size 10 cannot be shared equally by 4 processes"),
        ({"batch_size": 8, "world": 4, "rank": 4}, "the rank is 4, but must lie between 0 and 3"),
    ],
)
def test_settings_that_do_not_fit_are_an_error(settings, message):
    with pytest.raises(ArcmaskError, match=message):
        Batches(Numbers(5), seed=0, **settings)
