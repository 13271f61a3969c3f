"""Predictive feedback: the operators, the confidence weight, and `SoftMask`, which applies them to a batch."""

from importlib import import_module

from arcmask.feedback.confidence import Confidence
from arcmask.feedback.gate import Gate, StepDraw
from arcmask.feedback.registry import OPERATORS, Operator, find_operator, operator
from arcmask.feedback.soft_mask import Feedback, SoftMask
from arcmask.settings.operators import OPERATOR_NAMES

for _name in sorted(OPERATOR_NAMES, key=lambda name: (name != "none", name)):  # the baseline comes first
    import_module(f"arcmask.feedback.operators.{_name.replace('-', '_')}")

__all__ = [
    "OPERATORS",
    "Confidence",
    "Feedback",
    "Gate",
    "Operator",
    "SoftMask",
    "StepDraw",
    "find_operator",
    "operator",
]
