"""Lightning `.ckpt` files of the MDLM / Duo / soft-masking family, read without running anything that is in them.

Such a file is a pickle: beside tensors it holds omegaconf objects and whatever else the training program had at hand.
Here every global outside a short list of tensor parts is replaced by an inert stub that keeps its state as plain data
and does nothing, so that a malicious file is only a file with stubs in it.
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError

# What tensors are made of in torch's own format. Storage types never get here: torch resolves those itself.
_TENSOR_PARTS = {
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): OrderedDict,
}
_BUFFERS = ("rotary_emb.inv_freq",)
CONFIDENCE_KEYS = {
    "tran_head.raw_scale": "raw_scale",
    "tran_head.raw_centre_neg": "raw_centre",
    "tran_head.raw_steep": "raw_steepness",
}


class Inert:
    """Stands for an object of any class outside the list; keeps what it was given and runs nothing."""

    state: Any = None  # on the class: pickle makes objects without calling __init__

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *_: Any, **__: Any) -> "Inert":
        return self

    def __setitem__(self, _: Any, __: Any) -> None:
        """Pickled mappings of another type fill themselves."""

    def append(self, _: Any) -> None:
        """Pickled lists of another type append to themselves."""

    def extend(self, _: Any) -> None:
        """The same, many at a time."""


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _TENSOR_PARTS.get((module, name), Inert)


@dataclass(frozen=True)
class LightningFile:
    """What arcmask uses of such a file."""

    weights: dict[str, Tensor]  # `backbone.…`, EMA or raw
    confidence: dict[str, Tensor]  # the three raw scalars of a soft-masking run, by our names; may be empty
    settings: dict[str, Any]  # the training configuration as plain data, as far as it could be read


def read_lightning(path: Path, *, ema: bool = True) -> LightningFile:
    """The weights (EMA unless asked for the raw ones, or if there are none) and the settings of a `.ckpt`."""
    content = _unpickle(path)
    state = content.get("state_dict") if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping):
        raise ArcmaskError(f"{path} holds no state_dict, so it is not a Lightning checkpoint")
    state = {str(key).replace("_orig_mod.", ""): value for key, value in state.items()}
    _only_tensors(path, "state_dict", state.items())
    settings = _plain(content.get("hyper_parameters", {}))
    settings = settings if isinstance(settings, dict) else {}
    settings = settings.get("config", settings)
    settings = settings if isinstance(settings, dict) else {}
    _refuse_other_processes(path, settings)
    averages = content.get("ema")
    if ema and averages is not None:
        state |= _ema_weights(path, averages, state)
    weights = {key: tensor for key, tensor in state.items() if key.startswith("backbone.")}
    if not weights:
        raise ArcmaskError(f"{path} has no tensor whose name begins with 'backbone.'")
    confidence = {ours: state[theirs] for theirs, ours in CONFIDENCE_KEYS.items() if theirs in state}
    return LightningFile(weights=weights, confidence=confidence, settings=settings)


def _unpickle(path: Path) -> Any:
    if not path.is_file():
        raise ArcmaskError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise ArcmaskError(f"{path} is not a whole checkpoint in torch's zip format")
    with zipfile.ZipFile(path) as archive:
        if any(name.rpartition("/")[2] == "constants.pkl" for name in archive.namelist()):
            # torch.load would hand it to torch.jit.load, which runs the code in it.
            raise ArcmaskError(f"{path} is a TorchScript program, not a checkpoint; it is not opened")
    restricted = SimpleNamespace(Unpickler=_RestrictedUnpickler, __name__="restricted pickle")
    try:
        return torch.load(path, map_location="cpu", pickle_module=restricted, weights_only=False, mmap=True)
    except Exception as error:  # whatever a damaged or hostile file makes the unpickler stumble over
        raise ArcmaskError(f"{path} cannot be read as a checkpoint ({type(error).__name__}: {error})") from error


def _only_tensors(path: Path, name: str, items: Any) -> None:
    for key, value in items:
        if not isinstance(value, Tensor):
            raise ArcmaskError(f"{path} is refused: {name}[{key!r}] is not a tensor")


def _ema_weights(path: Path, averages: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The averaged tensors by name: they are listed in the order of the parameters, which is the state dict's."""
    shadow = averages.get("shadow_params") if isinstance(averages, Mapping) else None
    if not isinstance(shadow, list):
        raise ArcmaskError(f"{path} is refused: its ema holds no list of shadow_params")
    _only_tensors(path, "ema.shadow_params", enumerate(shadow))
    names = [key for key in state if not key.endswith(_BUFFERS)]
    if len(shadow) != len(names):
        # Some programs average the backbone and leave the confidence scalars out.
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


def _plain(value: Any) -> Any:
    """Settings as plain data: omegaconf nodes keep a mapping or list in `_content` and a leaf in `_val`."""
    if isinstance(value, Inert):
        state = value.state if isinstance(value.state, dict) else {}
        return _plain(state.get("_content", state.get("_val")))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) else None


def _refuse_other_processes(path: Path, settings: Any) -> None:
    found = dict(_leaves(settings))
    if found.get("time_conditioning") is True:
        raise ArcmaskError(
            f"{path} was trained with time_conditioning: true, but arcmask handles only models without it"
        )
    parameterization = found.get("parameterization", "subs")
    process = str(found.get("diffusion", "absorbing"))
    if parameterization != "subs" or "uniform" in process:
        raise ArcmaskError(
            f"{path} is a model of another process (parameterization {parameterization!r}, diffusion {process!r}); "
            "arcmask handles masked (absorbing-state) diffusion with the 'subs' parameterization"
        )


def _leaves(settings: Any) -> Iterator[tuple[str, Any]]:
    """Settings by their last name, those of `algo` (Duo's code) or of the top level (MDLM's)."""
    if isinstance(settings, dict):
        yield from settings.items()
        yield from settings.get("algo", {}).items() if isinstance(settings.get("algo"), dict) else ()
