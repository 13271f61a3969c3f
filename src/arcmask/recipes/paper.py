"""The paper's protocol: the released 169M model, OpenWebText, 7,000 steps, 5,000 samples, gpt2-large, MAUVE.

And its ablations, read at step 1,181 as the paper does, and what it left open: T = 512 over three seeds, fixed weights,
and the two operators between LERP and the Fréchet mean.
"""

from collections.abc import Callable
from dataclasses import replace

from arcmask.recipes.arms import karcher_arms, named_arm, operator_arms, top_k_arms, weight_arms
from arcmask.recipes.runs import owt_continue
from arcmask.settings.experiment import Arm, Generation, Plan

SEEDS = (1, 2, 3)
ABLATION_STEP = 1181
PARAMETERS = 169_627_218
# The paper does not say how tokens were filtered; its precursor's scripts draw from a nucleus of 0.9 without the token
# that crosses it. A text's first token is not counted there.
_GENERATION = Generation(
    samples=5000,
    length=1024,
    top_p=0.9,
    drop_crossing=True,
    evaluator="gpt2-large",
    start="none",
    features="gpt2-large",
)
_TRAIN = replace(owt_continue("spherical").train, keep=1)


def _plan(recipe: str, title: str, chosen: dict[str, Arm], budgets: tuple[int, ...] = (64, 128, 256)) -> Plan:
    return Plan(
        recipe=recipe,
        title=title,
        arms=chosen,
        baseline=next(iter(chosen)),
        prepare=owt_continue("spherical").prepare,
        seeds=SEEDS,
        budgets=budgets,
        generation=_GENERATION,
        parameters=PARAMETERS,
    )


def _learned() -> dict[str, Arm]:
    return dict(named_arm(_TRAIN, operator) for operator in ("none", "linear", "spherical"))


def paper() -> Plan:
    """The main tables. T = 512 is run over all seeds, which the paper leaves to others."""
    plan = _plan("paper", "The paper's protocol", _learned(), budgets=(64, 128, 256, 512))
    return replace(plan, protocol="paper")


def paper_regimes() -> Plan:
    """The learned weight and the angle over 7,000 steps, without generation."""
    return replace(_plan("paper-regimes", "Feedback regimes", _learned(), ()), protocol="paper", seeds=(1,))


def paper_karcher() -> Plan:
    """1, 3 and 5 Karcher steps, read at step 1,181."""
    return _ablation("paper-karcher", "Karcher steps", karcher_arms(_TRAIN, (1, 3, 5)), "karcher-3")


def paper_topk() -> Plan:
    """1, 3 and 5 candidates, read at step 1,181."""
    return _ablation("paper-topk", "Candidates", top_k_arms(_TRAIN, (1, 3, 5)), "top-3")


def _ablation(recipe: str, title: str, chosen: dict[str, Arm], baseline: str) -> Plan:
    shortened = {name: replace(arm, train=replace(arm.train, steps=ABLATION_STEP)) for name, arm in chosen.items()}
    plan = _plan(recipe, title, shortened, ())
    return replace(plan, baseline=baseline, protocol="paper", read_at=ABLATION_STEP, seeds=(1,))


def paper_weights() -> Plan:
    """Fixed weights from 0.1 to 0.5 along the line and along the circle."""
    chosen = weight_arms(_TRAIN, ("linear", "spherical"), (0.1, 0.2, 0.3, 0.4, 0.5))
    return _plan("paper-weights", "Fixed weights", chosen)


def paper_operators() -> Plan:
    """What makes the difference: the norm, the mean, or the path?"""
    return _plan("paper-operators", "Operators", operator_arms(_TRAIN))


PLANS: dict[str, Callable[[], Plan]] = {
    "paper": paper,
    "paper-karcher": paper_karcher,
    "paper-operators": paper_operators,
    "paper-regimes": paper_regimes,
    "paper-topk": paper_topk,
    "paper-weights": paper_weights,
}
