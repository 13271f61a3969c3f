"""The public names of arcmask, for type checkers and for `lazy_loader`, which imports them on first use."""

from . import (
    candidates,
    checkpoint,
    data,
    diagnostics,
    errors,
    evaluation,
    experiment,
    feedback,
    model,
    objective,
    report,
    sampling,
    sphere,
    training,
)
from .api import evaluate, explore, inspect, prepare, reproduce, sample, train, tune
from .checkpoint import load
from .model import Denoiser, wrap
from .tuning import Tuned

__version__: str
__all__ = [
    "Denoiser",
    "Tuned",
    "__version__",
    "candidates",
    "checkpoint",
    "data",
    "diagnostics",
    "errors",
    "evaluate",
    "evaluation",
    "experiment",
    "explore",
    "feedback",
    "inspect",
    "load",
    "model",
    "objective",
    "prepare",
    "report",
    "reproduce",
    "sample",
    "sampling",
    "sphere",
    "train",
    "training",
    "tune",
    "wrap",
]
