"""The geometry of a model, in numbers: each function returns a plain record whose `reading` says how to read it.

Attributes load late, for the command line's sake.
"""

from typing import Any

from arcmask import late

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
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
