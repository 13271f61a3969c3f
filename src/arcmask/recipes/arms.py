"""What arms of different experiments have in common: their names, their words, and how they differ from each other."""

from collections.abc import Iterable
from dataclasses import replace

from arcmask.experiment.plan import Arm
from arcmask.training.config import TrainConfig

_WORDS = {
    "none": "no feedback",
    "linear": "linear (LERP)",
    "renormalized": "linear, renormalized",
    "spherical": "spherical (SLERP)",
    "spherical-euclidean": "SLERP to the Euclidean mean",
}


def named_arm(train: TrainConfig, operator: str, weight: float | None = None) -> tuple[str, Arm]:
    """An operator with the learned weight, or with a fixed one; named `OPERATOR` or `OPERATOR-WEIGHT`."""
    label = _WORDS[operator]
    if operator == "none":
        return operator, Arm(label=label, train=replace(train, operator=operator))
    name = f"{operator}-learned" if weight is None else f"{operator}-{weight:g}"
    label = f"{label}, {'learned weight' if weight is None else f'weight {weight:g}'}"
    return name, Arm(label=label, train=replace(train, operator=operator, fixed_weight=weight))


def weight_arms(train: TrainConfig, operators: Iterable[str], values: Iterable[float]) -> dict[str, Arm]:
    """No feedback, and each operator with each fixed weight."""
    chosen = list(values)
    fed = [named_arm(train, operator, value) for operator in operators for value in chosen]
    return dict([named_arm(train, "none"), *fed])


def karcher_arms(train: TrainConfig, counts: Iterable[int]) -> dict[str, Arm]:
    """The learned spherical arm with so many Karcher steps."""
    return {
        f"karcher-{count}": Arm(
            label=f"{count} Karcher step{'s' if count > 1 else ''}",
            train=replace(train, operator="spherical", karcher_steps=count),
        )
        for count in counts
    }


def top_k_arms(train: TrainConfig, widths: Iterable[int]) -> dict[str, Arm]:
    """The learned spherical arm with so many candidates."""
    return {
        f"top-{width}": Arm(label=f"top {width}", train=replace(train, operator="spherical", top_k=width))
        for width in widths
    }
