"""The geometry of a model, in numbers: each function returns a plain record whose `reading` says how to read it.

Attributes load late, for the command line's sake.
"""

import importlib
from typing import Any

_HOMES = {
    "InspectConfig": "config",
    "angles_over_time": "angles",
    "angles_over_training": "training",
    "blend_costs": "cost",
    "confidence_weights": "weights",
    "inspect": "command",
    "karcher_distances": "karcher",
    "lerp_norms": "paths",
    "norms_by_rank": "norms",
    "predict": "predictions",
    "read_metrics": "training",
    "sphere_paths": "paths",
    "top_accuracy": "accuracy",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.diagnostics.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.diagnostics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
