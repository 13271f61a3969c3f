"""Sampling: step rules, filters, the loop with feedback, traces. Attributes load late, for the command line's sake."""

from typing import Any

from arcmask import late

_HOMES = {
    "RULES": "rules",
    "Filter": "filters",
    "SampleConfig": "config",
    "Sampler": "loop",
    "Samples": "generate",
    "Trace": "trace",
    "sample": "generate",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
