"""The geometry of a model in numbers: each function returns a record whose `reading` explains it."""

from arcmask.diagnostics.accuracy import top_accuracy
from arcmask.diagnostics.angles import angles_over_time
from arcmask.diagnostics.cost import blend_costs
from arcmask.diagnostics.curves import angles_over_training
from arcmask.diagnostics.inspection import inspect
from arcmask.diagnostics.karcher import karcher_distances
from arcmask.diagnostics.norms import norms_by_rank
from arcmask.diagnostics.paths import lerp_norms, sphere_paths
from arcmask.diagnostics.predictions import predict
from arcmask.diagnostics.weights import confidence_weights
from arcmask.settings.inspect import InspectConfig

__all__ = [
    "InspectConfig",
    "angles_over_time",
    "angles_over_training",
    "blend_costs",
    "confidence_weights",
    "inspect",
    "karcher_distances",
    "lerp_norms",
    "norms_by_rank",
    "predict",
    "sphere_paths",
    "top_accuracy",
]
