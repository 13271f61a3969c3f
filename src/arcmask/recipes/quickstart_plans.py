"""Experiments that run on a laptop: the shipped character model, the State of the Union addresses, a small evaluator.

`quickstart` takes nine minutes of processor time. On two cores `quickstart-long` takes more than an hour.
"""

from dataclasses import replace
from itertools import product
from typing import Any

from arcmask.recipes.arms import base_arms, feedback_arms, karcher_arms, operator_arms, top_k_arms, tuned_arms
from arcmask.recipes.runs import sotu_data, sotu_tiny
from arcmask.settings.experiment import Arm, Generation, Plan

WEIGHT = 0.3
# Batches are half as large as in the training of the base, which gives twice the steps at the same cost.
_SHORT = replace(
    sotu_tiny("spherical").train,
    steps=20,
    batch_size=16,
    micro_batch=16,
    warm_up=4,
    curve="cosine",
    save_every=20,
    keep=1,
    validate_every=0,
    validation_rows=0,
)
_LONG = replace(_SHORT, steps=160, warm_up=16, save_every=160)
_GENERATION = Generation(samples=32, length=128, batch_size=32, evaluator="smollm2-135m")


def _plan(recipe: str, title: str, arms: dict[str, Arm], **settings: Any) -> Plan:
    """Build a plan of three seeds and three budgets, unless a setting replaces them."""
    defaults: dict[str, Any] = {"baseline": next(iter(arms)), "seeds": (1, 2, 3), "budgets": (16, 32, 64)}
    inputs: dict[str, Any] = {"base": _SHORT.init, "data": _SHORT.data, "prepare": sotu_data()}
    return Plan(recipe=recipe, title=title, arms=arms, **(defaults | inputs | settings))


def _ablation(recipe: str, title: str, arms: dict[str, Arm], baseline: str = "none") -> Plan:
    """Build a plan of two budgets, with more held-out rows than the quickstart."""
    return _plan(recipe, title, arms, baseline=baseline, budgets=(32, 64), generation=_GENERATION, likelihood_rows=512)


def quickstart() -> Plan:
    """Compare the base as it is, with tuned feedback, and after a short training, over five seeds.

    At equal cost, five seeds of a few samples have narrower intervals than three seeds of more: Student's t falls from
    4.3 to 2.8.
    """
    arms = base_arms() | tuned_arms("spherical", rows=64) | feedback_arms(_SHORT, ("spherical", WEIGHT))
    generation = replace(_GENERATION, samples=24, batch_size=24, evaluator=None)
    settings: dict[str, Any] = {"seeds": (1, 2, 3, 4, 5), "budgets": (32,), "likelihood_rows": 192, "generate": True}
    return _plan("quickstart", "Quickstart", arms, generation=generation, **settings)


def quickstart_long() -> Plan:
    """Compare nine arms over five seeds, with more training, more samples and MAUVE."""
    frozen = base_arms(0.9) | tuned_arms("linear", "spherical")
    pairs = [("linear", WEIGHT), ("spherical", WEIGHT), ("linear", None), ("spherical", None)]
    return _plan(
        "quickstart-long",
        "Quickstart, long",
        frozen | feedback_arms(_LONG, *pairs),
        seeds=(1, 2, 3, 4, 5),
        generation=replace(_GENERATION, samples=48, features="smollm2-135m"),
        likelihood_rows=512,
        generate=True,
    )


def quickstart_karcher() -> Plan:
    """Compare 1, 3 and 5 Karcher steps."""
    return _ablation("quickstart-karcher", "Karcher steps", karcher_arms(_LONG), "karcher-3")


def quickstart_topk() -> Plan:
    """Compare 1, 3 and 5 candidates."""
    return _ablation("quickstart-topk", "Candidates", top_k_arms(_LONG), "top-3")


def quickstart_regimes() -> Plan:
    """Record the learned weight and the angle over training."""
    arms = feedback_arms(_LONG, ("linear", None), ("spherical", None))
    return _ablation("quickstart-regimes", "Feedback regimes", arms)


def quickstart_weights() -> Plan:
    """Compare fixed weights from 0.1 to 0.5 for the linear and the spherical operator."""
    pairs = product(("linear", "spherical"), (0.1, 0.3, 0.5))
    return _ablation("quickstart-weights", "Fixed weights", feedback_arms(_LONG, *pairs))


def quickstart_operators() -> Plan:
    """Compare all operators, which differ in norm, mean and path."""
    return _ablation("quickstart-operators", "Operators", operator_arms(_LONG, WEIGHT))


QUICKSTART = (
    quickstart,
    quickstart_karcher,
    quickstart_long,
    quickstart_operators,
    quickstart_regimes,
    quickstart_topk,
    quickstart_weights,
)
