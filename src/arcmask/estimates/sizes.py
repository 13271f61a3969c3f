"""The size of a model by its parts, without its weights.

A layout comes from a configuration: that of a known name, or the config.json of a folder. The model is built without
memory (on torch's device `meta`), and its parts are counted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from arcmask.checkpoint import find_checkpoint
from arcmask.checkpoint.fitting import build_config
from arcmask.checkpoint.layouts import describe_public, is_public
from arcmask.checkpoint.loading import read_wrapping
from arcmask.downloads import open_pretrained
from arcmask.errors import ArcmaskError
from arcmask.model import MDLM, MDLMConfig, size_config
from arcmask.run_folder import read_settings

# Matrices of a Diffusion Transformer that one row is multiplied with, and not every position.
_ONE_ROW = ("adaLN_modulation", "sigma_map")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The numbers of a transformer that its cost depends on."""

    width: int  # D
    blocks: int
    vocabulary: int  # V
    matrices: int  # weights that every position is multiplied with, without the output layer
    parameters: int
    longest: int | None = None  # positions, if the model has a limit

    def forward(self, length: int) -> float:
        """Return the operations of a pass at one of `length` positions, up to the output layer."""
        return 2.0 * self.matrices + self.attention(length)

    def attention(self, length: int) -> float:
        """Return the part of `forward` that is attention."""
        return 4.0 * self.blocks * self.width * length

    @property
    def head(self) -> float:
        """The operations of the output layer at one position."""
        return 2.0 * self.vocabulary * self.width


_GPT2 = {"vocabulary": 50_257, "longest": 1024}
# Models that recipes name. They are fetched only when they are used.
KNOWN = {
    "gpt2": Layout(width=768, blocks=12, matrices=12 * 12 * 768**2, parameters=124_439_808, **_GPT2),
    "gpt2-large": Layout(width=1280, blocks=36, matrices=36 * 12 * 1280**2, parameters=774_030_080, **_GPT2),
    "smollm2-135m": Layout(
        width=576, blocks=30, vocabulary=49_152, matrices=106_168_320, parameters=134_515_008, longest=8192
    ),
    "sapiens-vh": Layout(width=128, blocks=4, vocabulary=25, matrices=540_672, parameters=568_985, longest=146),
}
KNOWN_BASES: dict[str, MDLMConfig | Layout] = {
    "kuleshov-group/mdlm-owt": MDLMConfig(),
    "antiberty": Layout(width=512, blocks=8, vocabulary=25, matrices=25_427_968, parameters=25_759_769, longest=512),
}


def base_layout(name: str, vocabulary: int | None = None) -> Layout:
    """Return the layout of a denoiser: of new:SIZE with a vocabulary, a known name, or a checkpoint on this machine."""
    if name.startswith("new:"):
        assert vocabulary is not None
        return _mdlm_layout(size_config(name.removeprefix("new:"), vocabulary))
    if name in KNOWN_BASES:
        known = KNOWN_BASES[name]
        return known if isinstance(known, Layout) else _mdlm_layout(known)
    return _checkpoint_layout(find_checkpoint(name).absolute())  # the working folder may change


def is_known(name: str) -> bool:
    """Return whether a name stands for a model that is fetched."""
    return name in KNOWN or name in KNOWN_BASES


def evaluator_layout(name: str, find: Callable[[str], Path]) -> Layout:
    """Return the layout of an evaluator: of a known name, or of the folder that `find` returns."""
    if name in KNOWN:
        return KNOWN[name]
    from transformers import AutoModelForCausalLM

    return folder_layout(find(name), AutoModelForCausalLM)


@cache
def _checkpoint_layout(path: Path) -> Layout:
    if path.is_file():
        from arcmask.checkpoint import load

        return count_parts(load(path))
    settings = read_settings(path / "config.json")
    if settings.get("model_type") == "mdlm":
        return _mdlm_layout(build_config(str(path / "config.json"), settings))
    if is_public(settings):
        return count_parts(describe_public(str(path / "config.json"), settings)[0])
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    is_causal = read_wrapping(path).get("bidirectional", False)
    return folder_layout(path, AutoModelForCausalLM if is_causal else AutoModelForMaskedLM)


def _mdlm_layout(config: MDLMConfig) -> Layout:
    with torch.device("meta"):
        return count_parts(MDLM(config))


def folder_layout(folder: Path, auto: Any) -> Layout:
    """Return the layout of the model in a folder that a class of transformers opens."""
    from transformers import AutoConfig

    config = open_pretrained(AutoConfig, folder, f"{folder} does not describe a model", "give another one")
    try:
        with torch.device("meta"):
            return count_parts(auto.from_config(config, trust_remote_code=False))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise ArcmaskError(f"{folder} does not describe a model that transformers builds ({reason})") from error


def count_parts(model: nn.Module) -> Layout:
    """Count the parts of a transformers model, or of one like it."""
    from transformers.pytorch_utils import Conv1D

    whole: Any = model
    table, head, config = whole.get_input_embeddings(), whole.get_output_embeddings(), whole.config
    vocabulary, width = next(table.parameters()).shape
    matrices = [
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head and not any(part in name for part in _ONE_ROW)
    ]
    return Layout(
        width=width,
        blocks=config.num_hidden_layers,
        vocabulary=vocabulary,
        matrices=sum(matrices),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        longest=getattr(config, "max_position_embeddings", None),
    )
