"""Training: the loop, its optimiser, its run folders. Attributes load late, for the command line's sake."""

import importlib
from typing import Any

_HOMES = {"STOPPED": "loop", "Stopped": "loop", "TrainConfig": "config", "Trainer": "loop", "train": "loop"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
