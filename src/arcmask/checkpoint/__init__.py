"""Models in and out of files: `load` whatever there is, `save` it in the released layout, `convert` between all forms.

Knows where weights, feedback and tokenizer lie; what they mean is known to `model`, `feedback` and `data`.
"""

import json
import os
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from arcmask.checkpoint.lightning import CONFIDENCE_KEYS, LightningFile, read_lightning
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError, unknown_name
from arcmask.feedback import Confidence, SoftMask
from arcmask.files import written_whole
from arcmask.model import MDLM, MDLMConfig, Wrapped, wrap
from arcmask.model.denoiser import FEEDBACK_FILE
from arcmask.model.mdlm import refuse_misfits

__all__ = ["convert", "load", "newest_checkpoint", "save"]

Weights = Literal["ema", "raw"]
COMPLETE = "complete"  # the marker that is written last into a run's checkpoint folder
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")


def load(source: str | os.PathLike[str], *, weights: Weights = "ema") -> MDLM | Wrapped:
    """A denoiser from a folder, a run, a Lightning `.ckpt` or a hub id, with its feedback and tokenizer if it has them.

    `weights` chooses between the averaged and the raw ones where a file has both (a Lightning checkpoint).
    """
    if weights not in ("ema", "raw"):
        raise unknown_name("kind of weights", weights, ("ema", "raw"))
    path = Path(source)
    if path.suffix == ".ckpt":
        return _from_lightning(path, read_lightning(path, ema=weights == "ema"))
    if path.is_file():
        raise ArcmaskError(f"{path} is a file, but only Lightning checkpoints (.ckpt) are; otherwise give the folder")
    if not path.is_dir():
        path = _download(str(source))
    elif (path / "checkpoints").is_dir():
        path = newest_checkpoint(path)
    config = _read_json(path / "config.json")
    denoiser = _from_folder(path, config) if config.get("model_type") == "mdlm" else _from_transformers(path, config)
    if (path / FEEDBACK_FILE).is_file():
        denoiser.feedback = SoftMask.from_settings(_read_json(path / FEEDBACK_FILE))
    return denoiser


def save(denoiser: MDLM | Wrapped, folder: str | os.PathLike[str]) -> None:
    """Write config.json, model.safetensors, and feedback.json and the tokenizer's files if there are any."""
    denoiser.save_pretrained(folder)


def convert(source: str, target: str, *, weights: Weights = "ema") -> Path:
    """From any form that `load` reads to a folder in the released layout, or to a `.ckpt` if `target` ends so."""
    out = Path(target)
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ArcmaskError(f"{out} exists already; give a new name")
    denoiser = load(source, weights=weights)
    if out.suffix != ".ckpt":
        save(denoiser, out)
    elif isinstance(denoiser, MDLM):
        _write_lightning(denoiser, out)
    else:
        raise ArcmaskError(f"{source} is not a Diffusion Transformer, so it cannot become a Lightning checkpoint")
    return out


def newest_checkpoint(run: Path) -> Path:
    """The last complete checkpoint folder of a run; one without its final marker is passed over."""
    complete = sorted(step for step in (run / "checkpoints").glob("step-*") if (step / COMPLETE).is_file())
    if not complete:
        raise ArcmaskError(f"the run {run} has no complete checkpoint")
    return complete[-1]


def _download(source: str) -> Path:
    """The snapshot of a hub repository: its weights as safetensors, its settings and its tokenizer."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(source, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ArcmaskError(f"there is no folder {source!r}, and the hub does not give it either ({reason})") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ArcmaskError(f"{path.parent} is not a checkpoint: it has no {path.name}")
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ArcmaskError(f"{path} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise ArcmaskError(f"{path} holds no settings, but a {type(content).__name__}")
    return content


def _from_folder(folder: Path, config: dict[str, Any]) -> MDLM:
    """The released layout: a strict fit of keys and shapes, seen before any weight is kept."""
    model = _fitted(str(folder), MDLMConfig(**config), _read_weights(folder))
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        model.tokenizer = open_tokenizer(str(folder))
        if model.tokenizer.size != model.config.vocab_size:
            raise ArcmaskError(
                f"the tokenizer in {folder} has {model.tokenizer.size} entries, but the model has "
                f"{model.config.vocab_size}"
            )
    else:
        model.tokenizer = _default_tokenizer(model)
    return model


def _default_tokenizer(model: MDLM) -> Any:
    """The released model comes with no tokenizer file; by its vocabulary it is GPT-2's and the mask."""
    if model.config.vocab_size != 50258:
        return None
    try:
        return open_tokenizer("gpt2")
    except ArcmaskError:  # the package that holds its vocabulary is not installed
        return None


def _read_weights(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = sorted(set(_read_json(index)["weight_map"].values())) if index.is_file() else ["model.safetensors"]
    weights: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise ArcmaskError(f"{folder} has a config.json, but no {name}")
        try:
            weights |= safetensors.torch.load_file(folder / name)
        except (safetensors.SafetensorError, OSError) as error:
            raise ArcmaskError(f"{folder / name} is not a whole safetensors file ({error})") from error
    return weights


def _fitted(source: str, config: MDLMConfig, weights: dict[str, Tensor]) -> MDLM:
    """A model without storage, given these tensors as its own; refused if a key or a shape does not fit."""
    with torch.device("meta"):
        model = MDLM(config)
    wanted = model.state_dict()
    shared = wanted.keys() & weights.keys()
    report = {
        "missing_keys": wanted.keys() - weights.keys(),
        "unexpected_keys": weights.keys() - wanted.keys(),
        "mismatched_keys": [
            (k, weights[k].shape, wanted[k].shape) for k in shared if weights[k].shape != wanted[k].shape
        ],
    }
    refuse_misfits(source, report)
    model.load_state_dict(weights, assign=True)
    model.eval()  # type: ignore[no-untyped-call]
    return model


def _from_transformers(folder: Path, config: dict[str, Any]) -> Wrapped:
    """A masked LM of transformers, wrapped; its tokenizer says which id is the mask."""
    from transformers import AutoModelForMaskedLM

    kind = config.get("model_type")
    try:
        model = AutoModelForMaskedLM.from_pretrained(folder)
    except (ValueError, OSError) as error:
        raise ArcmaskError(
            f"{folder} holds a model of type {kind!r}, which is neither 'mdlm' nor a masked LM that transformers opens "
            "by itself; open it with its own code and pass it to arcmask.wrap(model, mask_id)"
        ) from error
    tokenizer = open_tokenizer(str(folder))
    denoiser = wrap(model, tokenizer.mask_id)
    denoiser.tokenizer = tokenizer
    return denoiser


def _from_lightning(path: Path, file: LightningFile) -> MDLM:
    """The configuration is read off the tensors' shapes; only length and dropout must come from the settings."""
    weights = file.weights
    needed = ("vocab_embed.embedding", "sigma_map.mlp.0.bias", "rotary_emb.inv_freq")
    missing = [name for name in needed if f"backbone.{name}" not in weights]
    if missing:
        raise ArcmaskError(f"{path} is not a Diffusion Transformer of this family: it has no backbone.{missing[0]}")
    vocab_size, hidden_dim = weights["backbone.vocab_embed.embedding"].shape
    settings = file.settings.get("model")
    settings = settings if isinstance(settings, dict) else {}
    config = MDLMConfig(
        vocab_size=vocab_size,
        hidden_dim=hidden_dim,
        cond_dim=weights["backbone.sigma_map.mlp.0.bias"].shape[0],
        n_blocks=len({key.split(".")[2] for key in weights if key.startswith("backbone.blocks.")}),
        n_heads=hidden_dim // (2 * weights["backbone.rotary_emb.inv_freq"].shape[0]),
        model_length=settings.get("length", 1024),
        dropout=settings.get("dropout", 0.1),
    )
    model = _fitted(str(path), config, {key: tensor.clone() for key, tensor in weights.items()})
    model.tokenizer = _default_tokenizer(model)
    if file.confidence:
        raw = {name: value.item() for name, value in file.confidence.items()}
        # Such files name no operator; the family's own is the linear one over its top three.
        model.feedback = SoftMask("linear", confidence=Confidence.from_settings(raw))
    return model


def _write_lightning(model: MDLM, out: Path) -> None:
    """A `.ckpt` with the same weights as raw and as EMA, which the family's programs can start from."""
    state = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    if model.feedback is not None and model.feedback.confidence.fixed is None:
        scalars = dict(model.feedback.confidence.named_parameters())
        state |= {theirs: scalars[ours].detach() for theirs, ours in CONFIDENCE_KEYS.items()}
    buffers = {name for name, _ in model.named_buffers()}
    shadow = [tensor for key, tensor in state.items() if key not in buffers]
    settings = {
        "model": {"length": model.config.model_length, "dropout": model.config.dropout},
        "parameterization": "subs",
        "time_conditioning": False,
    }
    content = {
        "state_dict": state,
        "ema": {"decay": 0.9999, "num_updates": 0, "shadow_params": shadow},
        "hyper_parameters": {"config": settings},
        "global_step": 0,
        "epoch": 0,
    }
    with written_whole(out.parent) as scratch:
        torch.save(content, scratch / out.name)
