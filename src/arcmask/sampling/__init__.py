"""Sampling from a denoiser: step rules, filters, the loop with feedback, and traces."""

from arcmask.sampling.filters import Filter
from arcmask.sampling.generate import Samples, sample
from arcmask.sampling.rules import RULES
from arcmask.sampling.sampler import Sampler
from arcmask.sampling.trace import Trace
from arcmask.settings.sample import SampleConfig

__all__ = ["RULES", "Filter", "SampleConfig", "Sampler", "Samples", "Trace", "sample"]
