"""Estimates of time and memory: what the layout of a model costs, counted, and how fast a machine is."""

from arcmask.estimates.machine import Machine
from arcmask.estimates.sizes import KNOWN_BASES, Layout, base_layout, evaluator_layout
from arcmask.estimates.work import Work

__all__ = ["KNOWN_BASES", "Layout", "Machine", "Work", "base_layout", "evaluator_layout"]
