"""The loader: every row once an epoch, the same from any step on, shared exactly among ranks, other with each seed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arcmask.data import Batches, in_order, open_prepared
from arcmask.data.loader import shuffled
from arcmask.errors import ArcmaskError


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
def test_the_ranks_shares_are_the_single_batch_in_order(count, step, share, world):
    settings = {"batch_size": share * world, "seed": 3}
    whole = Batches(Numbers(count), **settings).batch(step)
    shares = [Batches(Numbers(count), **settings, rank=rank, world=world).batch(step) for rank in range(world)]
    assert all(len(part) == share for part in shares)
    assert torch.cat(shares).equal(whole)


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
    assert batches.epoch(len(corpus)) == 8


@pytest.mark.parametrize("world", [1, 3])
def test_validation_is_every_row_in_order(world):
    parts = [list(in_order(Numbers(23), batch_size=4, rank=rank, world=world)) for rank in range(world)]
    assert all(len(batch) == 4 or batch[-1, 0] == 22 for part in parts for batch in part)
    merged = sorted((batch[:, 0].tolist() for part in parts for batch in part), key=lambda batch: batch[0])
    assert [row for batch in merged for row in batch] == list(range(23))


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
