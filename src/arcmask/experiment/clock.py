"""The time that is left of an experiment: estimated costs, corrected by what finished stages took."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, write_whole
from arcmask.run_folder import read_settings

_PRIOR = 0.25  # stages of a kind that its estimate counts for, against the measured ones


class Clock:
    """Time left, from the kind and the estimated seconds of every stage that is not done.

    Each kind of stage is corrected by its own ratio of measured to estimated time. A kind that has not been measured
    yet is corrected by the mean ratio of the others. `path` keeps the times, so that a resumed run knows them; a file
    that cannot be read is ignored.
    """

    def __init__(self, stages: Sequence[tuple[str, float]], path: Path | None = None) -> None:
        self.stages, self.path = stages, path
        self._expected: dict[str, float] = defaultdict(float)
        self._measured: dict[str, float] = defaultdict(float)
        with suppress(ArcmaskError, TypeError, ValueError):
            pairs = {} if path is None or not path.exists() else read_settings(path)
            for kind, (expected, measured) in pairs.items():
                if 0 < expected < math.inf and 0 < measured < math.inf:
                    self._expected[kind], self._measured[kind] = float(expected), float(measured)

    @contextmanager
    def measuring(self, number: int) -> Iterator[None]:
        """Measure the time of a stage, by its number."""
        start = time.monotonic()
        yield
        kind, seconds = self.stages[number]
        self._expected[kind] += seconds
        self._measured[kind] += time.monotonic() - start
        if self.path is not None:
            self.path.parent.mkdir(exist_ok=True)
            times = {kind: [self._expected[kind], self._measured[kind]] for kind in self._expected}
            write_whole(self.path, json_bytes(times))

    def left(self, done: int) -> float:
        """Return the seconds left after the first `done` stages."""
        rest: dict[str, float] = defaultdict(float)
        for kind, seconds in self.stages[done:]:
            rest[kind] += seconds
        return sum(seconds * self._ratio(kind) for kind, seconds in rest.items())

    def _ratio(self, kind: str) -> float:
        """Return by how much a kind of stage is slower than it was estimated to be."""
        ratios = {name: self._measured[name] / expected for name, expected in self._expected.items() if expected > 0}
        logs = [math.log(ratio) for ratio in ratios.values() if ratio > 0]
        # Half of the mean: a machine that is slow at one thing is often, but not always, slow at another.
        general = math.exp(sum(logs) / len(logs) / 2) if logs else 1.0
        if kind not in ratios:
            return general
        costs = [seconds for name, seconds in self.stages if name == kind and seconds > 0]
        prior = _PRIOR * sum(costs) / max(1, len(costs))
        return (self._measured[kind] + prior * general) / (self._expected[kind] + prior)
