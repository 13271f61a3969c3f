"""What arms of different experiments have in common: their names, labels, and how they differ from each other."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from arcmask.settings.experiment import Arm, Plan
from arcmask.settings.train import TrainConfig


def named_arm(train: TrainConfig, operator: str, weight: float | None = None) -> tuple[str, Arm]:
    """Return an arm and its name: OPERATOR-learned, OPERATOR-WEIGHT for a fixed weight, or none."""
    from arcmask.feedback import find_operator  # here, since `--help` reads the names of the recipes

    record = find_operator(operator)
    train, label = replace(train, operator=operator), record.label
    if operator == "none":
        return operator, Arm(label=label, train=train)
    name = f"{record.name.lower()}-learned" if weight is None else f"{record.name.lower()}-{weight:g}"
    label = f"{label}, {'learned weight' if weight is None else f'weight {weight:g}'}"
    colour = None if record.is_ours else record.colour
    return name, Arm(label=label, train=replace(train, fixed_weight=weight), colour=colour)


def operator_arms(train: TrainConfig, weight: float | None = None) -> dict[str, Arm]:
    """Return an arm for every operator of the package, each with the learned weight or with a fixed one."""
    from arcmask.feedback import OPERATORS

    names = [name for name, record in OPERATORS.items() if record.is_ours]
    return dict(named_arm(train, name, None if name == "none" else weight) for name in names)


def add_operators(plan: Plan, operators: Sequence[str]) -> Plan:
    """Add an arm for each operator, trained as the plan's last arm is."""
    train = list(plan.arms.values())[-1].train
    arms = dict(named_arm(train, operator, train.fixed_weight) for operator in operators)
    return replace(plan, arms=plan.arms | arms)


def weight_arms(train: TrainConfig, operators: Iterable[str], weights: Sequence[float]) -> dict[str, Arm]:
    """Return an arm without feedback, and one for each operator and fixed weight."""
    arms = [named_arm(train, operator, weight) for operator in operators for weight in weights]
    return dict([named_arm(train, "none"), *arms])


def karcher_arms(train: TrainConfig, counts: Iterable[int]) -> dict[str, Arm]:
    """Return the learned spherical arm for each number of Karcher steps."""
    return {
        f"karcher-{count}": Arm(
            label=f"{count} Karcher step{'s' if count > 1 else ''}",
            train=replace(train, operator="spherical", karcher_steps=count),
        )
        for count in counts
    }


def top_k_arms(train: TrainConfig, counts: Iterable[int]) -> dict[str, Arm]:
    """Return the learned spherical arm for each number of candidates."""
    return {
        f"top-{count}": Arm(label=f"top {count}", train=replace(train, operator="spherical", top_k=count))
        for count in counts
    }
