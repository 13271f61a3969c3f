"""The geometry of a model in numbers: each function returns a record whose `reading` explains it."""

from arcmask.diagnostics.cost import blend_costs
from arcmask.diagnostics.curves import angles_over_training
from arcmask.diagnostics.gain import GainCurve, gain_curve
from arcmask.diagnostics.generation import GenerationCurve, Generator, generation_curve, real_words
from arcmask.diagnostics.inspection import inspect
from arcmask.diagnostics.masked_positions import angles_over_time, confidence_weights, karcher_distances, top_accuracy
from arcmask.diagnostics.norms import lerp_norms, norms_by_rank, sphere_paths
from arcmask.diagnostics.predictions import predict
from arcmask.settings.inspect import InspectConfig

__all__ = [
    "GainCurve",
    "GenerationCurve",
    "Generator",
    "InspectConfig",
    "angles_over_time",
    "angles_over_training",
    "blend_costs",
    "confidence_weights",
    "gain_curve",
    "generation_curve",
    "inspect",
    "karcher_distances",
    "lerp_norms",
    "norms_by_rank",
    "predict",
    "real_words",
    "sphere_paths",
    "top_accuracy",
]
