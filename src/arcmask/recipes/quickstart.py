"""Experiments that run on a laptop: the shipped character model, the State of the Union addresses, a small evaluator.

The sizes are chosen for two processor cores: `quickstart` for ten minutes, `quickstart-long` for an hour and a half.
Batches are half those of the base, for twice the steps at the same cost.
"""

from collections.abc import Callable
from dataclasses import replace

from arcmask.recipes.arms import karcher_arms, named_arm, operator_arms, top_k_arms, weight_arms
from arcmask.recipes.runs import sotu_data, sotu_tiny
from arcmask.settings.experiment import Arm, Generation, Plan

WEIGHT = 0.3
_SHORT = replace(
    sotu_tiny("spherical").train,
    steps=48,
    batch_size=16,
    micro_batch=16,
    warm_up=8,
    curve="cosine",
    save_every=48,
    keep=1,
    validate_every=0,
    validation_rows=0,
)
_LONG = replace(_SHORT, steps=160, warm_up=16, save_every=160)
_GENERATION = Generation(samples=8, length=128, batch_size=8, evaluator="smollm2-135m")


def _plan(recipe: str, title: str, chosen: dict[str, Arm]) -> Plan:
    return Plan(
        recipe=recipe,
        title=title,
        arms=chosen,
        baseline=next(iter(chosen)),
        prepare=sotu_data(),
        seeds=(1, 2, 3),
        budgets=(16, 32, 64),
        generation=_GENERATION,
        likelihood_rows=128,
    )


def quickstart() -> Plan:
    """Everything once, in ten minutes; the intervals say what that is worth."""
    chosen = dict(
        [
            named_arm(_SHORT, "none"),
            named_arm(_SHORT, "linear", WEIGHT),
            named_arm(_SHORT, "spherical", WEIGHT),
            named_arm(_SHORT, "spherical"),
        ]
    )
    return _plan("quickstart", "Quickstart: feedback in a small character model", chosen)


def _longer(recipe: str, title: str, chosen: dict[str, Arm], seeds: int, samples: int) -> Plan:
    return replace(
        _plan(recipe, title, chosen),
        seeds=tuple(range(1, seeds + 1)),
        generation=replace(_GENERATION, samples=samples, batch_size=32),
        likelihood_rows=512,
    )


def quickstart_long() -> Plan:
    """The same with narrower intervals, the learned weight along the line as well, and MAUVE."""
    chosen = dict(
        [
            named_arm(_LONG, "none"),
            named_arm(_LONG, "linear", WEIGHT),
            named_arm(_LONG, "spherical", WEIGHT),
            named_arm(_LONG, "linear"),
            named_arm(_LONG, "spherical"),
        ]
    )
    plan = _longer("quickstart-long", "Quickstart, long: feedback in a small character model", chosen, 5, 48)
    return replace(plan, generation=replace(plan.generation, features="smollm2-135m"))


def quickstart_karcher() -> Plan:
    """1, 3 and 5 Karcher steps."""
    return _ablation("quickstart-karcher", "Karcher steps", karcher_arms(_LONG, (1, 3, 5)), "karcher-3")


def quickstart_topk() -> Plan:
    """1, 3 and 5 candidates."""
    return _ablation("quickstart-topk", "Candidates", top_k_arms(_LONG, (1, 3, 5)), "top-3")


def quickstart_regimes() -> Plan:
    """The learned weight and the angle over training."""
    chosen = dict(named_arm(_LONG, operator) for operator in ("none", "linear", "spherical"))
    return _ablation("quickstart-regimes", "Feedback regimes", chosen, "none")


def quickstart_weights() -> Plan:
    """Fixed weights from 0.1 to 0.5 along the line and along the circle."""
    chosen = weight_arms(_LONG, ("linear", "spherical"), (0.1, 0.3, 0.5))
    return _ablation("quickstart-weights", "Fixed weights", chosen, "none")


def quickstart_operators() -> Plan:
    """What makes the difference: the norm, the mean, or the path?"""
    return _ablation("quickstart-operators", "Operators", operator_arms(_LONG, WEIGHT), "none")


def _ablation(recipe: str, title: str, chosen: dict[str, Arm], baseline: str) -> Plan:
    return replace(_longer(recipe, title, chosen, seeds=3, samples=32), budgets=(32, 64), baseline=baseline)


PLANS: dict[str, Callable[[], Plan]] = {
    "quickstart": quickstart,
    "quickstart-karcher": quickstart_karcher,
    "quickstart-long": quickstart_long,
    "quickstart-operators": quickstart_operators,
    "quickstart-regimes": quickstart_regimes,
    "quickstart-topk": quickstart_topk,
    "quickstart-weights": quickstart_weights,
}
