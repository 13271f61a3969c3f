"""The arms of experiments: how they are named and labelled, and how they differ from each other.

The operators are imported late, since `--help` reads the names of the recipes and must not import torch.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.settings.experiment import Arm, Plan, Tuning
from arcmask.settings.train import TrainConfig


def feedback_arms(train: TrainConfig, *feedback: tuple[str, float | None]) -> dict[str, Arm]:
    """Return an arm without feedback, and one for each operator and fixed weight; None is the learned weight."""
    return dict([_named_arm(train, "none", None), *(_named_arm(train, *pair) for pair in feedback)])


def operator_arms(train: TrainConfig, weight: float | None = None) -> dict[str, Arm]:
    """Return an arm for every operator of the package, each with the learned weight or with a fixed one."""
    from arcmask.feedback import OPERATORS

    names = [name for name, record in OPERATORS.items() if record.is_ours and name != "none"]
    return feedback_arms(train, *((name, weight) for name in names))


def base_arms(*temperatures: float) -> dict[str, Arm]:
    """Return the base as it is, and plain sampling of it at other temperatures."""
    others = {f"base-temperature-{t:g}": Arm(label=f"base, temperature {t:g}", temperature=t) for t in temperatures}
    return {"base": Arm(label="base")} | others


def tuned_arms(*operators: str, **settings: Any) -> dict[str, Arm]:
    """Return an arm for each operator: the base with feedback that is fitted to it, with these settings."""
    return dict(_tuned_arm(Tuning(operator=operator, **settings)) for operator in operators)


def karcher_arms(train: TrainConfig) -> dict[str, Arm]:
    """Return the learned spherical arm with 1, 3 and 5 Karcher steps."""
    labels = {1: "1 Karcher step", 3: "3 Karcher steps", 5: "5 Karcher steps"}
    return {f"karcher-{count}": _spherical_arm(train, label, karcher_steps=count) for count, label in labels.items()}


def top_k_arms(train: TrainConfig) -> dict[str, Arm]:
    """Return the learned spherical arm with 1, 3 and 5 candidates."""
    return {f"top-{count}": _spherical_arm(train, f"top {count}", top_k=count) for count in (1, 3, 5)}


def ablation_arms(train: TrainConfig) -> dict[str, Arm]:
    """Return the arms of both ablations without those that equal the learned spherical arm: three steps, top three."""
    arms = karcher_arms(train) | top_k_arms(train)
    return {name: arm for name, arm in arms.items() if not name.endswith("-3")}


def add_operators(plan: Plan, operators: Sequence[str]) -> Plan:
    """Add an arm for each operator (a name, or FILE.py:FUNCTION), trained as the plan's last trained arm is.

    In a plan that trains nothing, the operators are fitted to the base.

    >>> from arcmask.recipes import add_operators, find_experiment
    >>> list(add_operators(find_experiment("quickstart"), ["renormalized"]).arms)[-1]
    'renormalized-0.3'
    """
    train = next((arm.train for arm in reversed(plan.arms.values()) if arm.train is not None), None)
    arms = dict(plan.arms)
    for operator in operators:
        name, arm = (
            _tuned_arm(Tuning(operator=operator)) if train is None else _named_arm(train, operator, train.fixed_weight)
        )
        if name in arms:
            raise ArcmaskError(f"the operator {operator} gives the arm {name}, which the plan has already")
        arms[name] = arm
    return replace(plan, arms=arms)


def _named_arm(train: TrainConfig, operator: str, weight: float | None) -> tuple[str, Arm]:
    """Return an arm and its name: OPERATOR-learned, OPERATOR-WEIGHT for a fixed weight, or none."""
    from arcmask.feedback import find_operator

    record = find_operator(operator)
    if operator == "none":
        return operator, Arm(label=record.label, train=replace(train, operator=operator))
    name, label = ("learned", "learned weight") if weight is None else (f"{weight:g}", f"weight {weight:g}")
    return f"{record.name.lower()}-{name}", Arm(
        label=f"{record.label}, {label}",
        train=replace(train, operator=operator, fixed_weight=weight),
        colour=None if record.is_ours else record.colour,
    )


def _tuned_arm(tuning: Tuning) -> tuple[str, Arm]:
    """Return an arm with fitted feedback and its name, OPERATOR-tuned."""
    from arcmask.feedback import find_operator

    record = find_operator(tuning.operator)
    colour = None if record.is_ours else record.colour
    return f"{record.name.lower()}-tuned", Arm(label=f"{record.label}, tuned", tune=tuning, colour=colour)


def _spherical_arm(train: TrainConfig, label: str, **settings: Any) -> Arm:
    return Arm(label=label, train=replace(train, operator="spherical", **settings))
