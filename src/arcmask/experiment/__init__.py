"""Arms x seeds x budgets as a plan that can be stopped and taken up at any point."""

from typing import Any

from arcmask import late

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
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
