"""The report: tables, figures and one HTML page from run folders. Attributes load late, for the command line's sake."""

import importlib
from typing import Any

_HOMES = {"ReportConfig": "config", "build_report": "build", "terminal_table": "terminal"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.report.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
