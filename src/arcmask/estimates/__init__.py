"""Estimates of time and memory: what the layout of a model costs, counted, and how fast a machine is."""

from arcmask.estimates.machine import Machine
from arcmask.estimates.sizes import Layout, base_layout, evaluator_layout
from arcmask.estimates.work import Work

__all__ = ["Layout", "Machine", "Work", "base_layout", "evaluator_layout"]
