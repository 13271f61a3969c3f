"""What was computed for a text is kept: a small database for each (evaluator, settings), keyed by the text's hash.

Knows keys and bytes, not what they mean. Several processes may read and write at once; a kill loses at most the batch
at hand. Under torchrun each process computes its share of the texts, and the first one gathers.
"""

import os
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

Batch = list[tuple[int, bytes]]  # place of a text and what was computed for it
_SECONDS_FOR_A_LOCK = 120.0
_KEYS_AT_A_TIME = 500


@dataclass(frozen=True)
class Share:
    """Which of several processes this is. A text belongs to one of them, by its hash."""

    rank: int = 0
    world: int = 1
    patience: float = 120.0  # seconds without news after which a process that others wait for is given up

    @classmethod
    def of_this_process(cls) -> "Share":
        """As torchrun says."""
        return cls(rank=int(os.environ.get("RANK", 0)), world=int(os.environ.get("WORLD_SIZE", 1)))

    def owns(self, key: str) -> bool:
        return int(key[:8], 16) % self.world == self.rank


class Cache:
    """Values by key, of one identity: what all of them depend on. Without a folder, in memory."""

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
        """Those of the keys that are there."""
        wanted = list(keys)
        if self.path is None:
            return {key: self._memory[key] for key in wanted if key in self._memory}
        found: dict[str, bytes] = {}
        with self._open() as database:
            for start in range(0, len(wanted), _KEYS_AT_A_TIME):
                part = wanted[start : start + _KEYS_AT_A_TIME]
                places = ",".join("?" * len(part))
                found.update(database.execute(f"SELECT key, value FROM found WHERE key IN ({places})", part))
        return found

    def add(self, values: dict[str, bytes]) -> None:
        """All at once, or none."""
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
            with closing(sqlite3.connect(self.path, timeout=_SECONDS_FOR_A_LOCK)) as database, database:
                yield database
        except (sqlite3.Error, OSError) as error:
            raise ArcmaskError(
                f"the cache {self.path} does not work ({error}); remove it, or set ARCMASK_CACHE to another folder"
            ) from error


def through_cache(
    cache: Cache,
    texts: Sequence[str],
    compute: Callable[[list[str]], Iterator[Batch]],
    *,
    share: Share,
    what: str,
) -> list[bytes] | None:
    """What belongs to each text, computed for those that have nothing yet. None for all processes but the first."""
    by_key = {sha256(text.encode("utf-8", "surrogatepass")): text for text in texts}
    missing = by_key.keys() - cache.get(by_key).keys()
    _fill(cache, [key for key in by_key if key in missing and share.owns(key)], by_key, compute, what)
    if share.rank != 0:
        return None
    if share.world > 1:
        left = _await_others(cache, list(by_key), share.patience)
        _fill(cache, left, by_key, compute, what)
    found = cache.get(by_key)
    return [found[sha256(text.encode("utf-8", "surrogatepass"))] for text in texts]


def _fill(
    cache: Cache,
    keys: list[str],
    by_key: dict[str, str],
    compute: Callable[[list[str]], Iterator[Batch]],
    what: str,
) -> None:
    if not keys:
        return
    with Progress(what, unit="texts", total=len(keys)) as progress:
        for batch in compute([by_key[key] for key in keys]):
            cache.add({keys[place]: value for place, value in batch})
            progress.advance(len(batch))


def _await_others(cache: Cache, keys: list[str], patience: float) -> list[str]:
    """Wait while the other processes still bring something; what they leave is for this one."""
    left, heard = keys, time.monotonic()
    while left and time.monotonic() - heard < patience:
        found = cache.get(left)
        if found:
            heard = time.monotonic()
            left = [key for key in left if key not in found]
        elif left:
            time.sleep(min(0.2, patience))
    return left
