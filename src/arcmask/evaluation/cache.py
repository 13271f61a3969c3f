"""A cache of what was computed for texts: one small database per evaluator and settings, keyed by the text's hash.

Several processes may read and write at once. A kill loses at most the current batch. Under torchrun each process
computes its share of the texts, and the first one collects the results.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, sha256
from arcmask.progress import Progress
from arcmask.ranks import rank, world_size

Batch = list[tuple[int, bytes]]  # the index of a text, and what was computed for it
Compute = Callable[[list[str]], Iterator[Batch]]
_LOCK_SECONDS = 120.0
_KEYS_PER_QUERY = 500


@dataclass(frozen=True)
class Share:
    """The position of this process among several. Each text belongs to one of them, by its hash."""

    rank: int = 0
    world: int = 1
    patience: float = 120.0  # seconds without a new result after which the first process does the others' work

    @classmethod
    def of_this_process(cls) -> "Share":
        """Read the position that torchrun sets."""
        return cls(rank=rank(), world=world_size())

    def owns(self, key: str) -> bool:
        """Return whether the text with this hash belongs to this process."""
        return int(key[:8], 16) % self.world == self.rank


class Cache:
    """Values by key, for one identity: everything that the values depend on. Without a folder they stay in memory."""

    def __init__(self, folder: Path | None, kind: str, identity: dict[str, Any]) -> None:
        self.path: Path | None = None
        self._memory: dict[str, bytes] = {}
        if folder is not None:
            self.path = folder / "scores" / f"{kind}-{sha256(json_bytes(identity))[:16]}.sqlite"
            with self._open() as database:
                database.execute("CREATE TABLE IF NOT EXISTS identity (content BLOB PRIMARY KEY)")
                database.execute("CREATE TABLE IF NOT EXISTS found (key TEXT PRIMARY KEY, value BLOB)")
                database.execute("INSERT OR IGNORE INTO identity VALUES (?)", (json_bytes(identity),))

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that the cache has."""
        keys = list(keys)
        if self.path is None:
            return {key: self._memory[key] for key in keys if key in self._memory}
        values: dict[str, bytes] = {}
        with self._open() as database:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                values.update(database.execute(f"SELECT key, value FROM found WHERE key IN ({marks})", part))
        return values

    def add(self, values: dict[str, bytes]) -> None:
        """Store all values, or none."""
        if self.path is None:
            self._memory.update(values)
            return
        with self._open() as database:
            database.executemany("INSERT OR REPLACE INTO found VALUES (?, ?)", values.items())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_LOCK_SECONDS)) as database, database:
                yield database
        except (sqlite3.Error, OSError) as error:
            raise ArcmaskError(
                f"the cache {self.path} does not work ({error}); remove it, or set ARCMASK_CACHE to another folder"
            ) from error


def text_key(text: str) -> str:
    """Return the key of a text: its hash."""
    return sha256(text.encode("utf-8", "surrogatepass"))


def through_cache(
    cache: Cache, texts: Sequence[str], compute: Compute, *, share: Share, what: str
) -> list[bytes] | None:
    """Return the value of each text and compute the missing ones. None in all processes but the first."""
    keys = [text_key(text) for text in texts]
    by_key = dict(zip(keys, texts, strict=True))
    missing = by_key.keys() - cache.get(by_key).keys()
    _fill(cache, {key: text for key, text in by_key.items() if key in missing and share.owns(key)}, compute, what)
    if share.rank != 0:
        return None
    if share.world > 1:
        left = _await_others(cache, list(by_key), share.patience)
        _fill(cache, {key: by_key[key] for key in left}, compute, what)
    values = cache.get(by_key)
    return [values[key] for key in keys]


def _fill(cache: Cache, texts: dict[str, str], compute: Compute, what: str) -> None:
    """Compute the values of texts (by key) and store them batch by batch."""
    if not texts:
        return
    keys = list(texts)
    with Progress(what, unit="texts", total=len(keys)) as progress:
        for batch in compute(list(texts.values())):
            cache.add({keys[index]: value for index, value in batch})
            progress.advance(len(batch))


def _await_others(cache: Cache, keys: list[str], patience: float) -> list[str]:
    """Wait while the other processes add values. Return the keys that they leave for this process."""
    left, last_news = keys, time.monotonic()
    while left and time.monotonic() - last_news < patience:
        if values := cache.get(left):
            last_news = time.monotonic()
            left = [key for key in left if key not in values]
        else:
            time.sleep(min(0.2, patience))
    return left
