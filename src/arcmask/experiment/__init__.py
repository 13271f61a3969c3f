"""Experiments: arms x seeds x budgets as a plan that resumes wherever it was interrupted."""

from arcmask.experiment.estimate import describe
from arcmask.experiment.run import reproduce
from arcmask.settings.experiment import Arm, Changes, Generation, Plan, Tuning

__all__ = ["Arm", "Changes", "Generation", "Plan", "Tuning", "describe", "reproduce"]
