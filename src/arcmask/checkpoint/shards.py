"""Read safetensors files strictly: in one file, or in the shards that an index lists."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from arcmask.errors import ArcmaskError
from arcmask.run_folder import read_settings

WEIGHTS = "model.safetensors"
_INDEX = f"{WEIGHTS}.index.json"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder. Each is in one shard, the one where the index says that it is."""
    shards = _read_index(folder)
    weights: dict[str, Tensor] = {}
    for name in [WEIGHTS] if shards is None else sorted(set(shards.values())):
        part = _read_file(folder, name)
        if shards is not None:
            _check_shard(folder, name, part, shards)
        weights |= part
    return weights


def check_shards(folder: Path) -> None:
    """Raise if a folder has an index, and it is damaged or lists a shard that is not there."""
    if (folder / WEIGHTS).is_file():  # which transformers opens in place of shards
        return
    for name in sorted(set((_read_index(folder) or {}).values())):
        _check_file(folder, name)


def _read_index(folder: Path) -> Mapping[str, str] | None:
    """Return key -> name of its shard; None if the folder has no index."""
    index = folder / _INDEX
    if not index.is_file():
        return None
    shards: Any = read_settings(index).get("weight_map")
    if not isinstance(shards, dict):
        raise ArcmaskError(f"{index} has no weight_map")
    for key, name in shards.items():
        if not isinstance(name, str) or not name or Path(name).name != name:
            raise ArcmaskError(f"{index}: the weight_map has {name!r} for {key}, but must have the name of a file")
    return shards


def _check_file(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise ArcmaskError(f"{folder} has a config.json, but no {name}")


def _read_file(folder: Path, name: str) -> dict[str, Tensor]:
    _check_file(folder, name)
    try:
        weights = safetensors.torch.load_file(folder / name)
    except (safetensors.SafetensorError, OSError) as error:
        raise ArcmaskError(f"{folder / name} is not a complete safetensors file ({error})") from error
    for key, tensor in weights.items():
        if tensor.dtype not in _DTYPES:
            raise ArcmaskError(
                f"{folder / name}: {key} is {_short(tensor.dtype)}, but arcmask reads weights in "
                f"{', '.join(map(_short, _DTYPES[:-1]))} or {_short(_DTYPES[-1])}"
            )
    return weights


def _check_shard(folder: Path, name: str, part: Mapping[str, Tensor], shards: Mapping[str, str]) -> None:
    """Raise for a tensor in a shard that the index says is in another one, or nowhere."""
    for key in sorted(part):
        if shards.get(key) != name:
            where = f"lists it in {shards[key]}" if key in shards else "does not list it"
            raise ArcmaskError(f"{folder / name} has {key}, but {_INDEX} {where}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
