"""Evaluation: scores of text with their uncertainty, the likelihood on a corpus, and statistics over seeds.

Attributes load late: `arcmask.evaluation.summarize` needs no torch.
"""

from typing import Any

from arcmask import late

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
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
