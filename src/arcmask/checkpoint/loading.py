"""Find out what kind of checkpoint a path or a hub id is, and open it as a denoiser with its feedback and tokenizer."""

import os
import warnings
from pathlib import Path
from typing import Any, Literal

import torch

from arcmask.checkpoint.antiberty import ANTIBERTY, fetch_antiberty
from arcmask.checkpoint.fitting import build_config, build_feedback, default_tokenizer, fit
from arcmask.checkpoint.layouts import is_public, open_public
from arcmask.checkpoint.lightning import load_lightning, write_lightning
from arcmask.checkpoint.shards import check_shards, read_weights
from arcmask.data import Tokenizer, open_tokenizer
from arcmask.downloads import NotFetchedError, hub_snapshot, open_pretrained
from arcmask.errors import ArcmaskError, check_choice, did_you_mean
from arcmask.files import writable
from arcmask.model import MDLM, Model, Wrapped, best_device, wrap
from arcmask.model.denoiser import FEEDBACK_FILE, without_bars
from arcmask.model.mdlm import refuse_misfits
from arcmask.model.wrap import WRAP_FILE, check_mask_token
from arcmask.run_folder import CHECKPOINTS, newest_checkpoint, read_settings

Weights = Literal["ema", "raw"]
Dtype = Literal["float32", "bfloat16"]
SHIPPED = {folder.name: folder for folder in Path(__file__).parent.glob("shipped/*") if folder.is_dir()}
_WRAP_SETTINGS = ("mask_id", "shift", "max_length", "bidirectional")  # in wrap.json
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")


def load(
    source: str | os.PathLike[str],
    *,
    weights: Weights = "ema",
    mask_id: int | None = None,
    bidirectional: bool = False,
    shift: bool | None = None,
    mask_token: str | None = None,
) -> Model:
    """Load a denoiser, with its feedback and its tokenizer if it has them.

    `source` is a folder, a training run (its last checkpoint), a Lightning `.ckpt`, a hub id, or `sotu-tiny`, the model
    that comes with the package (stored in bfloat16, opened in float32). `weights` chooses between the averaged ("ema")
    and the raw weights of a Lightning file. `mask_id` is for checkpoints that do not say which id is the mask.

    `bidirectional` opens a causal language model with full attention. Its outputs then predict the next position,
    unless `shift` is False, and `mask_token` is its mask, a token that it has or a new one; see `arcmask.wrap`. A saved
    denoiser knows all three.

    >>> import arcmask
    >>> denoiser = arcmask.load("sotu-tiny")
    >>> denoiser.table.shape, denoiser.mask_id, denoiser.max_length
    (torch.Size([28, 192]), 27, 128)
    """
    check_choice("kind of weights", weights, ("ema", "raw"))
    check_mask_token(bidirectional, mask_id, mask_token)
    if weights != "ema" and Path(source).suffix != ".ckpt":
        raise ArcmaskError(f"weights is {weights}, but only a Lightning checkpoint (.ckpt) has two kinds of weights")
    path = find_checkpoint(source)
    causal = {"bidirectional": bidirectional, "mask_token": mask_token}
    if path.suffix == ".ckpt":
        _refuse_unused(source, "a Lightning checkpoint", **causal, shift=shift)
        return load_lightning(path, ema=weights == "ema", mask_id=mask_id)
    config = _read_settings(path / "config.json")
    denoiser: Model
    if config.get("model_type") == "mdlm":
        _refuse_unused(source, "a Diffusion Transformer", **causal, shift=shift)
        denoiser = _load_mdlm(path, config, mask_id)
    elif is_public(config):
        _refuse_unused(source, "LLaDA or Dream", **causal)
        tokenizer = _open_tokenizer(path, mask_id)
        shift = _saved_shift(path) if shift is None else shift
        denoiser = open_public(path, config, read_weights(path), tokenizer, mask_id, shift)
    else:
        wanted = {"mask_id": mask_id, "bidirectional": bidirectional or None, "shift": shift, "mask_token": mask_token}
        denoiser = _load_language_model(path, config, {k: v for k, v in wanted.items() if v is not None})
    if (path / FEEDBACK_FILE).is_file():
        denoiser.feedback = build_feedback(str(path / FEEDBACK_FILE), _read_settings(path / FEEDBACK_FILE))
    return denoiser.float() if path == SHIPPED.get(str(source)) else denoiser


def _refuse_unused(source: str | os.PathLike[str], kind: str, **options: Any) -> None:
    """Raise for an option that means nothing for this kind of checkpoint."""
    for name, value in options.items():
        if value:
            raise ArcmaskError(f"{name} has no effect, since {source} is {kind}; leave it out")


def find_checkpoint(source: str | os.PathLike[str]) -> Path:
    """Return the folder or the .ckpt file of what `load` takes; a hub id is downloaded."""
    path = Path(source)
    if path.suffix == ".ckpt":
        return path
    if path.is_file():
        raise ArcmaskError(f"{path} is a file, but only Lightning checkpoints (.ckpt) are files; give its folder")
    if not path.is_dir() and str(source) == ANTIBERTY:
        return fetch_antiberty()
    if not path.is_dir():
        return SHIPPED[str(source)] if str(source) in SHIPPED else _from_hub(str(source))
    if not (path / CHECKPOINTS).is_dir():
        return path
    newest = newest_checkpoint(path)
    if newest is None:
        raise ArcmaskError(f"the run {path} has no complete checkpoint")
    return newest


def _from_hub(name: str) -> Path:
    """Return the folder of a hub id; an error asks about the names that are like it."""
    try:
        return hub_snapshot(name)
    except NotFetchedError:
        raise
    except ArcmaskError as error:
        near = Path(name).parent
        folders = [str(path) for path in near.iterdir() if path.is_dir()] if near.is_dir() else []
        names = [*SHIPPED, ANTIBERTY]
        question = did_you_mean(name, [*names, *folders]) or did_you_mean(name.casefold(), names)
        raise ArcmaskError(f"{error}{';' if question else ''}{question}") from error


def load_for_use(source: str | os.PathLike[str], *, mask_id: int | None = None) -> Model:
    """Load a denoiser onto this process's GPU, if it has one, and refuse weights that are not finite."""
    denoiser = load(source, mask_id=mask_id)
    for name, parameter in denoiser.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ArcmaskError(f"{source} cannot be used: its weights {name} are not finite (NaN or infinite)")
    return denoiser.to(best_device())


def save(denoiser: Model, folder: str | os.PathLike[str]) -> None:
    """Write config.json and model.safetensors, and feedback.json and the tokenizer's files if there are any."""
    denoiser.save(folder)


def convert(source: str, target: str, *, dtype: Dtype | None = None, **options: Any) -> Path:
    """Convert any form that `load` reads to a folder in its public layout, or to a file if `target` ends in .ckpt.

    `dtype` is the dtype of the written weights; by default it does not change. `options` are those of `load`.
    """
    out = Path(target)
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ArcmaskError(f"{out} exists already; give a new name")
    writable(out, is_folder=out.suffix != ".ckpt")
    denoiser = load(source, **options)
    if dtype is not None:
        denoiser = denoiser.bfloat16() if dtype == "bfloat16" else denoiser.float()
    if out.suffix != ".ckpt":
        save(denoiser, out)
    elif isinstance(denoiser, MDLM):
        write_lightning(denoiser, out)
    else:
        raise ArcmaskError(f"{source} is not a Diffusion Transformer, so it cannot become a Lightning checkpoint")
    return out


def _read_settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ArcmaskError(f"{path.parent} is not a checkpoint: it has no {path.name}")
    return read_settings(path)


def _open_tokenizer(folder: Path, mask: str | int | None = None) -> Tokenizer | None:
    has_files = any((folder / name).is_file() for name in _TOKENIZER_FILES)
    return open_tokenizer(folder, mask) if has_files else None


def _load_mdlm(folder: Path, config: dict[str, Any], mask_id: int | None) -> Model:
    """Load the released layout. Every key and shape must fit."""
    config = config if mask_id is None else config | {"mask_token_id": mask_id}
    model = fit(str(folder), build_config(str(folder / "config.json"), config), read_weights(folder))
    tokenizer = _open_tokenizer(folder)
    if tokenizer is not None and tokenizer.size != model.config.vocab_size:
        raise ArcmaskError(
            f"the tokenizer in {folder} has {tokenizer.size} entries, but the model has {model.config.vocab_size}"
        )
    if tokenizer is not None and tokenizer.mask_id != model.mask_id:
        raise ArcmaskError(
            f"the mask of the tokenizer in {folder} is {tokenizer.mask_id}, but the model's is {model.mask_id}"
        )
    model.tokenizer = tokenizer or default_tokenizer(model.config.vocab_size)
    return model


def read_wrapping(folder: Path) -> dict[str, Any]:
    """Return what wrap.json in a folder says; nothing if there is none."""
    return read_settings(folder / WRAP_FILE) if (folder / WRAP_FILE).is_file() else {}


def _saved_shift(folder: Path) -> bool | None:
    """Return the shift of LLaDA or Dream that was saved with another than its family's; None for that of the family."""
    shift = read_wrapping(folder).get("shift")
    if shift is not None and not isinstance(shift, bool):
        raise ArcmaskError(f"{folder / WRAP_FILE}: shift is {shift!r}, but must be true or false")
    return shift


def _load_language_model(folder: Path, config: dict[str, Any], wanted: dict[str, Any]) -> Wrapped:
    """Wrap a masked or, with `bidirectional`, a causal LM of transformers. `wanted` has arguments of `wrap`.

    The others come from wrap.json, if there is one.
    """
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    check_shards(folder)
    settings = read_wrapping(folder)
    options = {name: settings[name] for name in _WRAP_SETTINGS if name in settings} | wanted
    is_causal = options.get("bidirectional", False)
    kind = "causal" if is_causal else "masked"
    advice = "" if is_causal else "open a causal LM with bidirectional=True, or "
    with without_bars():
        model, report = open_pretrained(
            AutoModelForCausalLM if is_causal else AutoModelForMaskedLM,
            folder,
            f"{folder} has a model of type {config.get('model_type')!r}, which is neither 'mdlm' nor a {kind} LM that "
            "transformers opens by itself",
            f"{advice}open it with its own code and pass it to arcmask.wrap(model, mask_id)",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    unexpected = sorted(report["unexpected_keys"])
    refuse_misfits(str(folder), report | {"unexpected_keys": ()})
    if unexpected:
        warnings.warn(
            f"{folder} has weights that a {kind} LM does not use: {', '.join(unexpected[:3])}"
            + (f" and {len(unexpected) - 3} more" if len(unexpected) > 3 else ""),
            stacklevel=2,
        )
    mask = options.get("mask_token") or (options.get("mask_id") if is_causal else None)
    tokenizer = _open_tokenizer(folder, mask)
    if tokenizer is not None:
        options.pop("mask_token", None)  # it is the tokenizer's now
    elif options.get("mask_id") is None and mask is None:
        choice = "mask_token" if is_causal else "mask_id"
        raise ArcmaskError(f"{folder} has no tokenizer, so its mask is not known; give {choice}")
    return wrap(model, tokenizer=tokenizer, **options)
