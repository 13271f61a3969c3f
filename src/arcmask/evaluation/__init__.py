"""Evaluation: scores of text with their uncertainty, held-out likelihood, and statistics over seeds."""

from arcmask.evaluation.evaluator import Evaluator, open_evaluator
from arcmask.evaluation.nearest import Neighbours
from arcmask.evaluation.sapiens import Sapiens
from arcmask.evaluation.sets import evaluate, evaluate_set, likelihood, over_sets
from arcmask.evaluation.statistics import (
    PairedChange,
    PairedDifference,
    Summary,
    bootstrap_interval,
    paired_change,
    paired_difference,
    relative_change,
    summarize,
)
from arcmask.evaluation.texts import Reference, ReferenceWords
from arcmask.sampling.sample_file import read_samples
from arcmask.settings.evaluate import EvaluateConfig, PerplexitySettings

__all__ = [
    "EvaluateConfig",
    "Evaluator",
    "Neighbours",
    "PairedChange",
    "PairedDifference",
    "PerplexitySettings",
    "Reference",
    "ReferenceWords",
    "Sapiens",
    "Summary",
    "bootstrap_interval",
    "evaluate",
    "evaluate_set",
    "likelihood",
    "open_evaluator",
    "over_sets",
    "paired_change",
    "paired_difference",
    "read_samples",
    "relative_change",
    "summarize",
]
