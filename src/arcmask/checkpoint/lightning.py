"""Lightning `.ckpt` files of the MDLM, Duo and soft-masking family: read what arcmask uses of them, and write them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arcmask.checkpoint.fitting import build_config, build_feedback, default_tokenizer, fit
from arcmask.checkpoint.pickles import Inert, read_torch_file
from arcmask.errors import ArcmaskError
from arcmask.files import file_written_whole, removed_if_empty
from arcmask.model import MDLM

_BUFFERS = ("rotary_emb.inv_freq",)
# The family's names of the confidence scalars, and ours.
_CONFIDENCE_KEYS = {
    "tran_head.raw_scale": "raw_scale",
    "tran_head.raw_centre_neg": "raw_centre",
    "tran_head.raw_steep": "raw_steepness",
}
_MAX_DEPTH, _MAX_SETTINGS = 100, 100_000
_NEEDED = ("vocab_embed.embedding", "sigma_map.mlp.0.bias", "rotary_emb.inv_freq")


@dataclass(frozen=True)
class LightningFile:
    """The parts of a `.ckpt` that arcmask uses."""

    weights: dict[str, Tensor]  # `backbone.…`, EMA or raw
    confidence: dict[str, Tensor]  # the three raw scalars of a soft-masking run, by our names; may be empty
    settings: dict[str, Any]  # the training configuration as plain data, as far as it can be read


def read_lightning(path: Path, *, ema: bool = True) -> LightningFile:
    """Read the weights and settings of a `.ckpt`: EMA weights, unless there are none or the raw ones are asked for."""
    content = read_torch_file(path)
    state = content.get("state_dict") if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping):
        raise ArcmaskError(f"{path} has no state_dict, so it is not a Lightning checkpoint")
    state = {str(key).replace("_orig_mod.", ""): value for key, value in state.items()}
    _only_tensors(path, "state_dict", state.items())
    settings = _section({"all": _plain(content.get("hyper_parameters"))}, "all")
    settings = _section(settings, "config") or settings
    _refuse_other_processes(path, settings)
    averages = content.get("ema")
    if ema and averages is not None:
        state |= _ema_weights(path, averages, state)
    weights = {key: tensor for key, tensor in state.items() if key.startswith("backbone.")}
    if not weights:
        raise ArcmaskError(f"{path} has no tensor whose name begins with 'backbone.'")
    confidence = {ours: state[key] for key, ours in _CONFIDENCE_KEYS.items() if key in state}
    return LightningFile(weights=weights, confidence=confidence, settings=settings)


def load_lightning(path: Path, *, ema: bool, mask_id: int | None) -> MDLM:
    """Load a `.ckpt`. The shapes of its tensors give the configuration, except for length, dropout and mask."""
    file = read_lightning(path, ema=ema)
    weights, model_settings = file.weights, _section(file.settings, "model")
    missing = [name for name in _NEEDED if f"backbone.{name}" not in weights]
    if missing:
        raise ArcmaskError(f"{path} is not a Diffusion Transformer of this family: it has no backbone.{missing[0]}")
    table = weights["backbone.vocab_embed.embedding"]
    frequencies = weights["backbone.rotary_emb.inv_freq"].numel()
    if table.ndim != 2 or not frequencies:
        raise ArcmaskError(f"{path} is not a Diffusion Transformer of this family: its tensors have other shapes")
    ours = _section(file.settings, "arcmask")
    if mask_id is None:
        mask_id = ours["mask_id"] if "mask_id" in ours else _default_mask(path, file.settings, table.shape[0])
    config = build_config(
        str(path),
        {
            "vocab_size": table.shape[0],
            "hidden_dim": table.shape[1],
            "cond_dim": weights["backbone.sigma_map.mlp.0.bias"].shape[0],
            "n_blocks": len({key.split(".")[2] for key in weights if key.startswith("backbone.blocks.")}),
            "n_heads": table.shape[1] // (2 * frequencies),
            "model_length": model_settings.get("length", 1024),
            "dropout": model_settings.get("dropout", 0.1),
            "mask_token_id": mask_id,
        },
    )
    model = fit(str(path), config, {key: tensor.clone() for key, tensor in weights.items()})
    model.tokenizer = default_tokenizer(model.config.vocab_size)
    if "feedback" in ours:
        model.feedback = build_feedback(str(path), ours["feedback"])
    elif file.confidence:
        scalars = {name: value.item() for name, value in file.confidence.items() if value.numel() == 1}
        # Such files name no operator. The family has only the linear one, over the top three candidates.
        settings = {"operator": "linear", "top_k": 3, "karcher_steps": 3, "confidence": scalars}
        model.feedback = build_feedback(str(path), settings)
    return model


def write_lightning(model: MDLM, out: Path) -> None:
    """Write a `.ckpt` that the family's programs can start from; the weights are both the raw and the EMA ones."""
    state = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    ours: dict[str, Any] = {"mask_id": model.mask_id}
    if model.feedback is not None:
        ours["feedback"] = model.feedback.settings()
        scalars = dict(model.feedback.confidence.named_parameters())
        state |= {key: scalars[name].detach() for key, name in _CONFIDENCE_KEYS.items() if scalars}
    buffers = {name for name, _ in model.named_buffers()}
    settings = {
        "model": {"length": model.config.model_length, "dropout": model.config.dropout},
        "parameterization": "subs",
        "time_conditioning": False,
        "arcmask": ours,
    }
    shadow = [tensor for key, tensor in state.items() if key not in buffers]
    content = {
        "state_dict": state,
        "ema": {"decay": 0.9999, "num_updates": 0, "shadow_params": shadow},
        "hyper_parameters": {"config": settings},
        "global_step": 0,
        "epoch": 0,
    }
    with removed_if_empty(out.parent), file_written_whole(out) as beside:
        out.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:  # opened here, because torch's own writer does not say why a disk refuses
            torch.save(content, file)


def _only_tensors(path: Path, name: str, items: Any) -> None:
    for key, value in items:
        if not isinstance(value, Tensor):
            raise ArcmaskError(f"{path} is refused: {name}[{key!r}] is not a tensor")


def _ema_weights(path: Path, averages: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the averaged tensors by name. The file lists them in the order of the state dict's parameters."""
    shadow = averages.get("shadow_params") if isinstance(averages, Mapping) else None
    if not isinstance(shadow, list):
        raise ArcmaskError(f"{path} is refused: its ema has no list of shadow_params")
    _only_tensors(path, "ema.shadow_params", enumerate(shadow))
    names = [key for key in state if not key.endswith(_BUFFERS)]
    if len(shadow) != len(names):
        # Some programs average the backbone without the confidence scalars.
        names = [key for key in names if key.startswith("backbone.")]
    if len(shadow) != len(names):
        raise ArcmaskError(f"{path} has {len(shadow)} EMA tensors for {len(names)} parameters of the backbone")
    for name, tensor in zip(names, shadow, strict=True):
        if tensor.shape != state[name].shape:
            raise ArcmaskError(
                f"{path}: the EMA tensor for {name} has shape {tuple(tensor.shape)}, but the parameter has "
                f"{tuple(state[name].shape)}"
            )
    return dict(zip(names, shadow, strict=True))


def _plain(value: Any, depth: int = 0, counter: Any = None) -> Any:
    """Return settings as plain data. omegaconf keeps a mapping or list in `_content` and a leaf in `_val`.

    Settings that are nested too deep or too large, as those that contain themselves, are cut off.
    """
    counter = count() if counter is None else counter
    if depth > _MAX_DEPTH or next(counter) > _MAX_SETTINGS:
        return None
    if isinstance(value, Inert):
        state = value.state if isinstance(value.state, dict) else {}
        return _plain(state.get("_content", state.get("_val")), depth + 1, counter)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1, counter) for key, item in value.items() if isinstance(key, str | int)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1, counter) for item in value]
    return value if isinstance(value, (str, int, float, bool)) else None


def _section(settings: Any, name: str) -> dict[str, Any]:
    """Return a mapping inside a mapping, or an empty one."""
    section = settings.get(name) if isinstance(settings, dict) else None
    return section if isinstance(section, dict) else {}


def _default_mask(path: Path, settings: dict[str, Any], vocab_size: int) -> int:
    """Return the last id, where the family adds a mask to GPT-2's vocabulary; other tokenizers have their own."""
    tokenizer = _section(settings, "data").get("tokenizer_name_or_path", "gpt2")
    if tokenizer not in ("gpt2", "text8", None):
        raise ArcmaskError(
            f"{path} was trained with the tokenizer {tokenizer!r} and does not say which id is the mask; give mask_id"
        )
    return vocab_size - 1


def _refuse_other_processes(path: Path, settings: dict[str, Any]) -> None:
    """Refuse models with time conditioning or another diffusion process; Duo's code keeps these under `algo`."""
    merged = settings | _section(settings, "algo")
    if merged.get("time_conditioning") is True:
        raise ArcmaskError(
            f"{path} was trained with time_conditioning: true, but arcmask handles only models without it"
        )
    parameterization = merged.get("parameterization", "subs")
    process = str(merged.get("diffusion", "absorbing"))
    if parameterization != "subs" or "uniform" in process:
        raise ArcmaskError(
            f"{path} is a model of another process (parameterization {parameterization!r}, diffusion {process!r}); "
            "arcmask handles masked (absorbing-state) diffusion with the 'subs' parameterization"
        )
