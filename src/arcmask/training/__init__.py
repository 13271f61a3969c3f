"""Training: the loop, its optimiser, its run folders. Attributes load late, for the command line's sake."""

from typing import Any

from arcmask import late

_HOMES = {"STOPPED": "loop", "Stopped": "loop", "TrainConfig": "config", "Trainer": "loop", "train": "loop"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
