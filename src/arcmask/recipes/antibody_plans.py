"""Feedback in a real pre-trained model: AntiBERTy fills in antibodies, of which both framework ends are given.

The first and the last framework region have 25 and 11 residues in 97 % of the chains. What is between them holds all
three loops.
"""

from arcmask.recipes.arms import base_arms, feedback_arms, tuned_arms
from arcmask.settings.experiment import Generation, Plan
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainConfig

_ENDS = (25, 11)
_WEIGHT = 0.3
_DATA = PrepareConfig(corpus="antibodies", out="data/antibodies", tokenizer="residues", length=137, pack="none")
_TRAIN = TrainConfig(
    data=_DATA.out,
    init="antiberty",
    gate_probability=0.8,
    steps=100,
    batch_size=8,
    micro_batch=8,
    learning_rate=1e-4,
    warm_up=10,
    curve="cosine",
    ema=0.95,
    dropout=0.0,
    save_every=50,
    keep=1,
    validate_every=0,
    validation_rows=0,
)


def antibody() -> Plan:
    """Fill in antibodies with AntiBERTy: as it is, with tuned feedback, and after a short training, over five seeds."""
    frozen = base_arms(0.9, 0.8, 0.7) | tuned_arms("linear", "spherical", rows=32)
    trained = feedback_arms(_TRAIN, ("linear", _WEIGHT), ("spherical", _WEIGHT))
    return Plan(
        recipe="antibody",
        title="Antibodies",
        arms=frozen | trained,
        baseline="base",
        base=_TRAIN.init,
        data=_DATA.out,
        prepare=_DATA,
        seeds=(1, 2, 3, 4, 5),
        budgets=(8, 16, 32),
        generation=Generation(
            samples=24,
            length=_DATA.length,
            batch_size=12,
            evaluator="sapiens-vh",
            ends=_ENDS,
            fills=4,
            nearest=True,
        ),
        likelihood_rows=64,
    )


ANTIBODY = (antibody,)
