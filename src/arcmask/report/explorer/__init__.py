"""The explorer: one self-contained page on which a sentence forms, step by step, in several arms."""

import importlib
from typing import Any

_HOMES = {"ExploreConfig": "config", "build_page": "page", "write_page": "page"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.report.explorer.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.report.explorer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
