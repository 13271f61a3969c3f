"""Training runs by name: each function builds the settings of one."""

from dataclasses import dataclass

from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainConfig

PAPER_CENTRE, PAPER_STEEPNESS = -4.0, 10 / 1.5


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run, and how its data are prepared if the folder does not exist yet."""

    train: TrainConfig
    prepare: PrepareConfig


def sotu_data() -> PrepareConfig:
    """Return how to prepare the State of the Union addresses in 27 symbols; every twentieth is held out."""
    return PrepareConfig(corpus="sotu", out="data/sotu-text8-128", tokenizer="text8", length=128)


def sotu_tiny_base() -> Recipe:
    """Train a small character model from scratch, without feedback."""
    train = TrainConfig(
        data=sotu_data().out,
        init="new:tiny",
        operator="none",
        centre=PAPER_CENTRE,
        steepness=PAPER_STEEPNESS,
        steps=8_000,
        batch_size=32,
        micro_batch=32,
        learning_rate=2e-3,
        warm_up=300,
        curve="cosine",
        beta2=0.98,
        ema=0.999,
        dropout=0.0,
        save_every=250,
        validate_every=500,
        validation_rows=512,
    )
    return Recipe(train=train, prepare=sotu_data())


def sotu_tiny(operator: str) -> Recipe:
    """Continue the shipped character model with the operator in the recipe's name.

    The entropy of 27 symbols is at most 3.3 nats, so the centre is -1.5 in place of -4.
    """
    train = TrainConfig(
        data=sotu_data().out,
        init="sotu-tiny",
        operator=operator,
        centre=-1.5,
        steepness=4.0,
        gate_probability=0.8,
        steps=500,
        batch_size=32,
        micro_batch=32,
        learning_rate=3e-4,
        warm_up=50,
        ema=0.99,
        dropout=0.0,
        save_every=100,
        validate_every=100,
    )
    return Recipe(train=train, prepare=sotu_data())


def owt_continue(operator: str) -> Recipe:
    """Continue the released 169M model as in the paper, with the operator in the recipe's name.

    These are 7,000 steps of 512 rows of 1,024 tokens.
    """
    prepare = PrepareConfig(
        corpus="hub:Skylion007/openwebtext@refs/convert/parquet",
        out="data/owt-gpt2-1024-enclosed",
        tokenizer="gpt2",
        length=1024,
        row_form="enclosed",
    )
    train = TrainConfig(
        data=prepare.out,
        init="kuleshov-group/mdlm-owt",
        operator=operator,
        centre=PAPER_CENTRE,
        steepness=PAPER_STEEPNESS,
        steps=7_000,
        batch_size=512,
        micro_batch=16,
        learning_rate=3e-5,
        confidence_learning_rate=1e-2,
        warm_up=200,
        ema=0.9999,
        save_every=250,
        validate_every=250,
        validation_rows=512,
        tracker="tensorboard",
    )
    return Recipe(train=train, prepare=prepare)
