"""Models in and out of files: `load` whatever there is, `save` it in the released layout, `convert` between all forms.

Knows where weights, feedback and tokenizer lie; what they mean is known to `model`, `feedback` and `data`.
"""

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
from arcmask.feedback import SoftMask
from arcmask.files import written_whole
from arcmask.model import MDLM, MDLMConfig, Model, Wrapped, best_device, wrap
from arcmask.model.denoiser import FEEDBACK_FILE
from arcmask.model.mdlm import refuse_misfits
from arcmask.model.wrap import WRAP_FILE
from arcmask.run_folder import CHECKPOINTS, newest_checkpoint, read_settings

__all__ = ["convert", "load", "load_for_use", "save"]

Weights = Literal["ema", "raw"]
Dtype = Literal["float32", "bfloat16"]
SHIPPED = {folder.name: folder for folder in Path(__file__).parent.glob("shipped/*") if folder.is_dir()}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")


def load(source: str | os.PathLike[str], *, weights: Weights = "ema", mask_id: int | None = None) -> Model:
    """A denoiser from a folder, a run, a Lightning `.ckpt` or a hub id, with its feedback and tokenizer if it has them.

    `sotu-tiny`, where no folder of that name is in the way, is the model that comes with the package; its weights are
    stored in bfloat16 and opened in float32.
    `weights` chooses between the averaged and the raw ones where a file has both (a Lightning checkpoint). `mask_id` is
    for checkpoints that do not say which id is the mask.
    """
    if weights not in ("ema", "raw"):
        raise unknown_name("kind of weights", weights, ("ema", "raw"))
    path = Path(source)
    if path.suffix == ".ckpt":
        return _from_lightning(path, read_lightning(path, ema=weights == "ema"), mask_id)
    if path.is_file():
        raise ArcmaskError(f"{path} is a file, but only Lightning checkpoints (.ckpt) are; otherwise give the folder")
    is_shipped = not path.is_dir() and str(source) in SHIPPED
    if is_shipped:
        path = SHIPPED[str(source)]
    elif not path.is_dir():
        path = _download(str(source))
    elif (path / CHECKPOINTS).is_dir():
        newest = newest_checkpoint(path)
        if newest is None:
            raise ArcmaskError(f"the run {path} has no complete checkpoint")
        path = newest
    config = _read_json(path / "config.json")
    if config.get("model_type") == "mdlm":
        denoiser: Model = _from_folder(path, config if mask_id is None else config | {"mask_token_id": mask_id})
    else:
        denoiser = _from_transformers(path, config, mask_id)
    if (path / FEEDBACK_FILE).is_file():
        denoiser.feedback = _feedback(str(path / FEEDBACK_FILE), _read_json(path / FEEDBACK_FILE))
    return denoiser.float() if is_shipped else denoiser


def load_for_use(source: str | os.PathLike[str], *, mask_id: int | None = None) -> Model:
    """Load a denoiser onto this process's GPU, if it has one."""
    return load(source, mask_id=mask_id).to(best_device())


def _feedback(source: str, settings: Any) -> SoftMask:
    """Feedback from what a file says of it."""
    try:
        return SoftMask.from_settings(settings)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArcmaskError(f"{source} does not describe feedback: {error}") from error


def _config(source: str, settings: dict[str, Any]) -> MDLMConfig:
    """A configuration from what a file says of it."""
    try:
        return MDLMConfig(**settings)
    except ArcmaskError:
        raise
    except Exception as error:  # transformers checks types in its own way, with errors of its own
        raise ArcmaskError(f"{source} does not describe a model: {' '.join(str(error).split())}") from error


def save(denoiser: Model, folder: str | os.PathLike[str]) -> None:
    """Write config.json, model.safetensors, and feedback.json and the tokenizer's files if there are any."""
    denoiser.save(folder)


def convert(
    source: str, target: str, *, weights: Weights = "ema", mask_id: int | None = None, dtype: Dtype | None = None
) -> Path:
    """From any form that `load` reads to a folder in the released layout, or to a `.ckpt` if `target` ends so.

    `dtype` is that of the weights in the target; by default they stay as they are.
    """
    out = Path(target)
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ArcmaskError(f"{out} exists already; give a new name")
    denoiser = load(source, weights=weights, mask_id=mask_id)
    if dtype is not None:
        denoiser = denoiser.bfloat16() if dtype == "bfloat16" else denoiser.float()
    if out.suffix != ".ckpt":
        save(denoiser, out)
    elif isinstance(denoiser, MDLM):
        _write_lightning(denoiser, out)
    else:
        raise ArcmaskError(f"{source} is not a Diffusion Transformer, so it cannot become a Lightning checkpoint")
    return out


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
    return read_settings(path)


def _from_folder(folder: Path, config: dict[str, Any]) -> MDLM:
    """The released layout: a strict fit of keys and shapes, seen before any weight is kept."""
    model = _fitted(str(folder), _config(str(folder / "config.json"), config), _read_weights(folder))
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        model.tokenizer = open_tokenizer(str(folder))
        if model.tokenizer.size != model.config.vocab_size:
            raise ArcmaskError(
                f"the tokenizer in {folder} has {model.tokenizer.size} entries, but the model has "
                f"{model.config.vocab_size}"
            )
        if model.tokenizer.mask_id != model.mask_id:
            raise ArcmaskError(
                f"the mask of the tokenizer in {folder} is {model.tokenizer.mask_id}, but the model's is "
                f"{model.mask_id}"
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
    names = ["model.safetensors"]
    if index.is_file():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict):
            raise ArcmaskError(f"{index} holds no weight_map")
        names = sorted(set(shards.values()))
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


def _from_transformers(folder: Path, config: dict[str, Any], mask_id: int | None) -> Wrapped:
    """A masked LM of transformers, wrapped; what `wrap` was told when it was saved, or its tokenizer, says how."""
    from transformers import AutoModelForMaskedLM

    kind = config.get("model_type")
    try:
        model = AutoModelForMaskedLM.from_pretrained(folder)
    except (ValueError, OSError) as error:
        raise ArcmaskError(
            f"{folder} holds a model of type {kind!r}, which is neither 'mdlm' nor a masked LM that transformers opens "
            "by itself; open it with its own code and pass it to arcmask.wrap(model, mask_id)"
        ) from error
    told = _read_json(folder / WRAP_FILE) if (folder / WRAP_FILE).is_file() else {}
    tokenizer = None
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        tokenizer = open_tokenizer(str(folder))
    if mask_id is None:
        mask_id = told.get("mask_id", None if tokenizer is None else tokenizer.mask_id)
    if mask_id is None:
        raise ArcmaskError(f"{folder} has no tokenizer, so that its mask is not known; give mask_id")
    denoiser = wrap(model, mask_id, shift=told.get("shift", False), max_length=told.get("max_length"))
    if tokenizer is not None and tokenizer.size > denoiser.table.shape[0]:
        raise ArcmaskError(
            f"the tokenizer in {folder} has {tokenizer.size} entries, but the model has {denoiser.table.shape[0]}"
        )
    denoiser.tokenizer = tokenizer
    return denoiser


def _from_lightning(path: Path, file: LightningFile, mask_id: int | None) -> MDLM:
    """The configuration is read off the tensors' shapes; only length, dropout and mask must come from elsewhere."""
    weights = file.weights
    needed = ("vocab_embed.embedding", "sigma_map.mlp.0.bias", "rotary_emb.inv_freq")
    missing = [name for name in needed if f"backbone.{name}" not in weights]
    if missing:
        raise ArcmaskError(f"{path} is not a Diffusion Transformer of this family: it has no backbone.{missing[0]}")
    table = weights["backbone.vocab_embed.embedding"]
    frequencies = weights["backbone.rotary_emb.inv_freq"].numel()
    if table.ndim != 2 or not frequencies:
        raise ArcmaskError(f"{path} is not a Diffusion Transformer of this family: its tensors have other shapes")
    settings, ours = _section(file.settings, "model"), _section(file.settings, "arcmask")
    if mask_id is None:
        mask_id = ours.get("mask_id", _last_if_gpt2(path, file.settings, table.shape[0]))
    config = _config(
        str(path),
        {
            "vocab_size": table.shape[0],
            "hidden_dim": table.shape[1],
            "cond_dim": weights["backbone.sigma_map.mlp.0.bias"].shape[0],
            "n_blocks": len({key.split(".")[2] for key in weights if key.startswith("backbone.blocks.")}),
            "n_heads": table.shape[1] // (2 * frequencies),
            "model_length": settings.get("length", 1024),
            "dropout": settings.get("dropout", 0.1),
            "mask_token_id": mask_id,
        },
    )
    model = _fitted(str(path), config, {key: tensor.clone() for key, tensor in weights.items()})
    model.tokenizer = _default_tokenizer(model)
    if "feedback" in ours:
        model.feedback = _feedback(str(path), ours["feedback"])
    elif file.confidence:
        raw = {name: value.item() for name, value in file.confidence.items() if value.numel() == 1}
        # Such files name no operator; the family's own is the linear one over its top three.
        fed = {"operator": "linear", "top_k": 3, "karcher_steps": 3, "confidence": raw}
        model.feedback = _feedback(str(path), fed)
    return model


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _last_if_gpt2(path: Path, settings: dict[str, Any], vocab_size: int) -> int:
    """The family adds a mask behind GPT-2's vocabulary, but takes a tokenizer's own where it has one."""
    tokenizer = _section(settings, "data").get("tokenizer_name_or_path", "gpt2")
    if tokenizer not in ("gpt2", "text8", None):
        raise ArcmaskError(
            f"{path} was trained with the tokenizer {tokenizer!r} and does not say which id is the mask; give mask_id"
        )
    return vocab_size - 1


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
        "arcmask": {"mask_id": model.mask_id}
        | ({} if model.feedback is None else {"feedback": model.feedback.settings()}),
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
