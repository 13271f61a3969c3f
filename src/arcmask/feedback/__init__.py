"""Predictive feedback: the operators, the confidence weight, and `SoftMask`, which applies them to a batch."""

from arcmask.feedback import operators as _operators  # noqa: F401  (fills OPERATORS)
from arcmask.feedback.confidence import Confidence
from arcmask.feedback.gate import Gate, StepDraw
from arcmask.feedback.registry import OPERATORS, Operator, find_operator, operator
from arcmask.feedback.soft_mask import Feedback, SoftMask

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
