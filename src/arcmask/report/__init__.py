"""The report: tables, figures and one HTML page from run folders. Attributes load late, for the command line's sake."""

from typing import Any

from arcmask import late

_HOMES = {"ReportConfig": "config", "build_report": "build", "terminal_table": "terminal"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
