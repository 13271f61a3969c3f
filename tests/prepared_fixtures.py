"""Fixtures: a small prepared corpus and a small model to train on it. Tests of training and of experiments use them."""

import random
from pathlib import Path

import pytest
from models import small_mdlm

from arcmask.checkpoint import save
from arcmask.data import PrepareConfig, open_tokenizer, prepare
from arcmask.training import TrainConfig


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> str:
    """Rows of 16 characters out of a few words, so that there is something to learn."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(0)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"]
    for number in range(40):
        (folder / f"{number:02d}.txt").write_text(" ".join(rng.choice(words) for _ in range(200)))
    out = str(folder / "prepared")
    prepare(PrepareConfig(corpus=str(folder), out=out, tokenizer="text8", length=16, holdout="every:5"))
    return out


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    """A random model in float64 with dropout, so that a resumed run must draw the same again."""
    model = small_mdlm(vocab_size=28, dropout=0.1).double()
    model.tokenizer = open_tokenizer("text8")
    folder = tmp_path_factory.mktemp("base")
    save(model, folder)
    return folder


@pytest.fixture(scope="session")
def config(corpus, base) -> TrainConfig:
    return TrainConfig(
        data=corpus,
        init=str(base),
        centre=-2.5,
        steepness=2.0,
        steps=12,
        batch_size=8,
        micro_batch=4,
        learning_rate=1e-3,
        warm_up=2,
        ema=0.9,
        save_every=3,
        validate_every=6,
        validation_rows=8,
        precision="float32",
    )
