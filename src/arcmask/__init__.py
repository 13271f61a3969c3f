"""Predictive feedback for masked diffusion language models, along the sphere on which their embeddings live.

`import arcmask` is light: what needs torch is imported when it is first used.
"""

import importlib
from importlib.metadata import version
from typing import Any

from arcmask import late

__version__ = version("arcmask")

_MODULES = (
    "candidates",
    "checkpoint",
    "data",
    "diagnostics",
    "errors",
    "evaluation",
    "experiment",
    "feedback",
    "model",
    "report",
    "sampling",
    "sphere",
    "training",
)
_HOMES = {"Denoiser": "model", "load": "checkpoint", "sample": "sampling", "wrap": "model"}

__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"arcmask.{name}")
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
