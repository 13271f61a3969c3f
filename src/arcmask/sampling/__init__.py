"""Sampling: step rules, filters, the loop with feedback, traces. Attributes load late, for the command line's sake."""

import importlib
from typing import Any

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
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.sampling.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.sampling' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
