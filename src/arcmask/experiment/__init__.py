"""Arms x seeds x budgets as a plan that can be stopped and taken up at any point."""

import importlib
from typing import Any

_HOMES = {
    "Arm": "plan",
    "Changes": "plan",
    "Generation": "plan",
    "Plan": "plan",
    "describe": "estimate",
    "reproduce": "run",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.experiment.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.experiment' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
