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
from .checkpoint import load
from .model import Denoiser, wrap
from .sampling import sample
from .tuning import Tuned, tune

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
    "evaluation",
    "experiment",
    "feedback",
    "load",
    "model",
    "objective",
    "report",
    "sample",
    "sampling",
    "sphere",
    "training",
    "tune",
    "wrap",
]
