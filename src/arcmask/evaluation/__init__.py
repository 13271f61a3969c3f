"""Evaluation: scores of text with their uncertainty, the likelihood on a corpus, and statistics over seeds.

Attributes load late: `arcmask.evaluation.summarize` needs no torch.
"""

import importlib
from typing import Any

_HOMES = {
    "EvaluateConfig": "config",
    "Evaluator": "evaluator",
    "PairedDifference": "statistics",
    "PerplexitySettings": "config",
    "Reference": "texts",
    "ReferenceWords": "texts",
    "Summary": "statistics",
    "bootstrap_interval": "statistics",
    "evaluate_set": "scores",
    "likelihood": "held_out",
    "open_evaluator": "opening",
    "over_sets": "command",
    "paired_difference": "statistics",
    "read_samples": "texts",
    "relative_change": "statistics",
    "summarize": "statistics",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.evaluation.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
