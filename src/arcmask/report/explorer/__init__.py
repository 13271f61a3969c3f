"""The explorer: one self-contained page on which a sentence forms, step by step, in several arms."""

from typing import Any

from arcmask import late

_HOMES = {"ExploreConfig": "config", "build_page": "page", "write_page": "page"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
