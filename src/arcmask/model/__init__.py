"""Denoisers: the Diffusion Transformer, the adapter for transformers models, and their kinds of input."""

from arcmask.model.config import SIZES, MDLMConfig, size_config
from arcmask.model.denoiser import Denoiser, Model, autocast, best_device, has_fast_bfloat16
from arcmask.model.inputs import Distribution, Embedded, Mixture, ModelInput, TokenIds, embed
from arcmask.model.mdlm import MDLM
from arcmask.model.wrap import Wrapped, wrap

__all__ = [
    "MDLM",
    "SIZES",
    "Denoiser",
    "Distribution",
    "Embedded",
    "MDLMConfig",
    "Mixture",
    "Model",
    "ModelInput",
    "TokenIds",
    "Wrapped",
    "autocast",
    "best_device",
    "embed",
    "has_fast_bfloat16",
    "size_config",
    "wrap",
]
