"""Plans of one's own: a YAML file with settings by name, or a function in a Python file that returns a `Plan`.

In the file, `train` holds the settings that all trained arms share; the `train` of an arm holds its own. The base and
the data of the plan are those of its arms, and the plan sets the seed of training.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import yaml

from arcmask.errors import ArcmaskError
from arcmask.run_folder import read_settings, read_yaml
from arcmask.settings.experiment import Arm, Generation, Plan, Tuning
from arcmask.settings.kinds import typed
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainConfig

_FROM_PLAN = ("init", "data", "seed")  # settings of training that the plan sets


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Write lists in one line."""


_Dumper.add_representer(list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, True))


def is_plan_file(name: str) -> bool:
    """Whether a name is the file of a plan: FILE.yaml, FILE.py or FILE.py:FUNCTION."""
    return name.endswith((".yaml", ".yml", ".py")) or ".py:" in name


def open_plan(name: str) -> Plan:
    """Read the plan of a YAML file, or call the function of FILE.py:FUNCTION, or `plan` of FILE.py."""
    from arcmask.feedback import find_operator

    plan = read_plan(Path(name)) if name.endswith((".yaml", ".yml")) else _call(name)
    for operator in plan.operators:
        find_operator(operator)
    return plan


def _call(name: str) -> Plan:
    from arcmask.feedback.registry import function_in_file

    source = name if ".py:" in name else f"{name}:plan"
    function = function_in_file(source, "plan")
    try:
        plan = function()
    except ArcmaskError:
        raise
    except Exception as error:
        raise ArcmaskError(f"{source} failed ({type(error).__name__}: {error})") from error
    if not isinstance(plan, Plan):
        raise ArcmaskError(f"{source} must return an arcmask.experiment.Plan, but returned {plan!r}")
    return plan


def plan_to_yaml(plan: Plan) -> str:
    """Return a plan as the text of a file that `read_plan` reads."""
    every = plan.arms | plan.ablations
    trains = [_settings_of(arm.train, _FROM_PLAN) for arm in every.values() if arm.train is not None]
    first = trains[0] if trains else {}
    shared = {name: value for name, value in first.items() if all(train[name] == value for train in trains)}
    values = _settings_of(plan, ("arms", "ablations", "prepare", "pretrain", "generation"))
    values["generation"] = _settings_of(plan.generation)
    values["prepare"] = None if plan.prepare is None else _settings_of(plan.prepare, ("out", "verify"))
    values["pretrain"] = None if plan.pretrain is None else _settings_of(plan.pretrain, ("data",))
    values |= {"train": shared} if trains else {}
    for kind, arms in (("arms", plan.arms), ("ablations", plan.ablations)):
        values[kind] = {name: _arm_settings(arm, shared) for name, arm in arms.items()}
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _settings_of(record: Any, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the settings of a dataclass as plain data."""
    values = {setting.name: getattr(record, setting.name) for setting in fields(record)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if name not in leave_out
    }


def _arm_settings(arm: Arm, shared: Mapping[str, Any]) -> dict[str, Any]:
    values = _settings_of(arm, ("train", "tune"))
    if arm.train is not None:
        own = _settings_of(arm.train, _FROM_PLAN)
        values["train"] = {name: value for name, value in own.items() if name not in shared}
    if arm.tune is not None:
        values["tune"] = asdict(arm.tune)
    return values


def read_plan(path: Path) -> Plan:
    """Read a plan. A setting that is unknown, missing or of the wrong kind is named in one sentence."""
    where, values = str(path), {"recipe": path.stem.lower(), **read_settings(path, read_yaml)}
    shared = values.pop("train", None) or {}
    values.setdefault("title", values["recipe"])
    _check_names(where, values, [setting.name for setting in fields(Plan)], _required(Plan, "baseline", "prepare"))
    if values.get("prepare") is not None:
        values["prepare"] = _build(PrepareConfig, values["prepare"], f"prepare in {where}", out=values["data"])
    values["generation"] = _build(Generation, values["generation"], f"generation in {where}")
    inputs = {"init": values["base"], "data": values["data"]}
    if values.get("pretrain") is not None:
        values["pretrain"] = _build(
            TrainConfig, values["pretrain"], f"pretrain in {where}", ("data",), data=values["data"]
        )
    for kind in ("arms", "ablations"):
        arms = _mapping(values.get(kind) or {}, f"{kind} in {where}")
        values[kind] = {str(name): _read_arm(str(name), entry, shared, inputs, where) for name, entry in arms.items()}
    return _build(Plan, values, where, prepare=None, baseline=next(iter(values["arms"]), ""))


def _read_arm(name: str, entry: Any, shared: Any, inputs: Mapping[str, Any], where: str) -> Arm:
    place = f"the arm {name} in {where}"
    values = dict(_mapping({} if entry is None else entry, place))
    if values.get("train") is not None:
        both = {**_mapping(shared, f"train in {where}"), **_mapping(values["train"], f"train of {place}")}
        values["train"] = _build(TrainConfig, both, f"train of {place}", _FROM_PLAN, **inputs)
    if values.get("tune") is not None:
        values["tune"] = _build(Tuning, values["tune"], f"tune of {place}")
    return _build(Arm, values, place, label=name)


def _mapping(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ArcmaskError(f"{where} must be settings by name, but is {values!r}")
    return values


def _required(kind: type, *optional: str) -> list[str]:
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return [name for name in needed if name not in optional]


def _check_names(where: str, values: Mapping[str, Any], choices: list[str], required: list[str]) -> None:
    for name in values:
        if name not in choices:
            raise ArcmaskError(f"unknown setting {name!r} in {where}; choose one of: {', '.join(sorted(choices))}")
    missing = [name for name in required if values.get(name) is None]
    if missing:
        raise ArcmaskError(f"{where} needs {' and '.join(missing)}")


def _build(kind: type, values: Any, where: str, from_plan: tuple[str, ...] = (), **defaults: Any) -> Any:
    """Build a dataclass from settings by name. `defaults` are settings that the place sets, or that may be left out.

    `from_plan` are settings that only the plan may set.
    """
    values = _mapping(values, where)
    types = {setting.name: setting.type for setting in fields(kind)}
    choices = [name for name in types if name not in from_plan]
    _check_names(where, values, choices, _required(kind, *defaults))
    checked = {name: typed(value, types[name], f"{name} in {where}") for name, value in values.items()}
    try:
        return kind(**(defaults | checked))
    except ArcmaskError as error:
        raise ArcmaskError(f"{where}: {error}") from error
