"""Decide whether a plan may continue a folder with results: it may add seeds, budgets, arms and samples.

Everything else that changes results must be as it was when the folder was written.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.run_folder import CHECKPOINTS, PLAN, TRAINING, interpreting, refuse_other_settings
from arcmask.settings.train import ON_RESUME

_GROWING = ("seeds", "budgets", "arms", "ablations", "samples")
# What only describes the results: the report reads it from the newest plan.
_DESCRIPTION = (
    *("recipe", "title", "protocol", "read_at", "baseline", "label", "colour"),
    *("command", "environment", "corpus", "kind", "tokenizer"),
)


def check_extension(folder: Path, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise unless the plan `current`, as `Plan.to_json` returns it, continues the plan that the folder has."""
    with interpreting(folder / PLAN, "a plan with arms, seeds and budgets"):
        shared = [name for name in _arms(stored) if name in _arms(current)]
        started = {name for name in shared if any(folder.glob(f"{name}/seed-*/{TRAINING}/{CHECKPOINTS}/step-*"))}
        before, now = _comparable(stored, shared, started), _comparable(current, shared, started)
        left_out = _left_out(stored, current)
    refuse_other_settings(folder, before, now)
    if left_out:
        raise ArcmaskError(
            f"{folder} has {', '.join(left_out)}; a plan can add to them but not leave them out, so name them too or "
            "give another folder with --run"
        )


def _left_out(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Describe the seeds, budgets, arms and samples of the folder that the plan does not have."""
    parts = []
    for name in ("seeds", "budgets", "arms", "ablations"):
        absent = [str(value) for value in stored.get(name, ()) if value not in current.get(name, ())]
        parts += [f"{name if len(absent) > 1 else name[:-1]} {' '.join(absent)}"] if absent else []
    is_fewer = stored["samples"] > current["samples"]
    return parts + ([f"{stored['samples']} samples per cell"] if is_fewer else [])


def _arms(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of all arms and ablations."""
    return {**plan["arms"], **plan.get("ablations", {})}


def _comparable(plan: Mapping[str, Any], arms: list[str], started: set[str]) -> dict[str, Any]:
    """Return the settings that change results, those of these arms among them, each under a name for a message.

    `started` are the arms that have a checkpoint.
    """
    settings = {name: value for name, value in plan.items() if name not in (*_DESCRIPTION, *_GROWING, "pretrain")}
    base = plan.get("pretrain")
    settings |= {"pretrain": base and "settings"}
    settings |= {f"{name} of the base": value for name, value in _results_of(base or {}, is_started=True).items()}
    for arm in arms:
        entry = _arms(plan)[arm]
        settings[f"temperature of {arm}"] = entry.get("temperature", 1.0)
        for kind in ("train", "tune"):
            values = entry.get(kind)
            settings[f"{kind} of {arm}"] = None if values is None else "settings"
            settings |= {f"{name} of {arm}": value for name, value in _results_of(values or {}, arm in started).items()}
    return settings


def _results_of(training: Mapping[str, Any], is_started: bool) -> dict[str, Any]:
    """Return the settings of a training run that change its results, or would if it has not started."""
    is_free = training.get("dropout") == 0 or not is_started
    free = (*ON_RESUME["always"], *(ON_RESUME["without dropout"] if is_free else ()))
    return {name: value for name, value in training.items() if name not in free}
