"""The corpus of antibodies: its clusters against brute force, its hold-out, and the real file."""

import random

import numpy as np
import pytest

from arcmask.data import PrepareConfig, open_corpus
from arcmask.data.antibodies import clusters, fetch_antibodies, read_chains, split


def mutated(loop: str, count: int, draw: random.Random) -> str:
    letters = list(loop)
    for place in draw.sample(range(len(loop)), count):
        letters[place] = draw.choice("ACDEFGHIKLMNPQRSTVWY".replace(letters[place], ""))
    return "".join(letters)


@pytest.fixture(scope="module")
def loops() -> list[str]:
    """Families of loops of 10 and 15 residues: each member differs from the one before it in up to a fifth."""
    draw, members = random.Random(0), []
    for number in range(30):
        loop = "".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=10 + 5 * (number % 2)))
        for _ in range(draw.randint(1, 6)):
            members.append(loop)
            loop = mutated(loop, draw.randint(0, len(loop) // 5), draw)
    draw.shuffle(members)
    return members


def test_clusters_are_the_connected_parts_of_the_graph_of_neighbours(loops):
    labels, count = clusters(loops), len(loops)
    near = np.array(
        [[len(a) == len(b) and sum(map(str.__ne__, a, b)) <= len(a) // 5 for b in loops] for a in loops], dtype=bool
    )
    reached = near.copy()
    for _ in range(count):  # paths of any length
        reached = reached | (reached.astype(int) @ near.astype(int) > 0)
    assert np.array_equal(labels[:, None] == labels[None, :], reached)
    assert 20 < len(set(labels.tolist())) < count


def test_no_cluster_is_split_and_a_tenth_is_held_out(loops):
    chains = {f"chain{number}": loop for number, loop in enumerate(loops)}
    train, held_out = split(chains)
    labels = dict(zip(chains, clusters(loops).tolist(), strict=True))
    assert sorted(train + held_out) == sorted(chains)
    assert not {labels[chain] for chain in train} & {labels[chain] for chain in held_out}
    assert 0.1 * len(loops) <= len(held_out) <= 0.1 * len(loops) + 6
    assert split(chains) == (train, held_out)


@pytest.mark.slow
def test_the_real_corpus_has_its_chains_and_keeps_held_out_ones_apart():
    corpus = open_corpus("antibodies")
    chains, held_out = list(corpus.documents()), len(split(read_chains(fetch_antibodies()))[1])
    assert PrepareConfig(corpus="antibodies", out="data").holdout_rule == f"last:{held_out}"
    assert len(chains) == len(set(chains)) == corpus.count() == 13_035
    assert list(corpus.documents(13_000)) == chains[13_000:]
    train = {length: [] for length in map(len, chains)}
    for chain in chains[:-held_out]:
        train[len(chain)].append(chain)
    nearest = [
        min(sum(map(str.__ne__, chain, other)) for other in train[len(chain)])
        for chain in chains[-held_out:][:20]
        if train[len(chain)]
    ]
    assert min(nearest) >= 5
