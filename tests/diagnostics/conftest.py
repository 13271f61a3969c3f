"""A small model, a corpus of its own tokenizer, and a run that was really trained with feedback."""

from pathlib import Path

import pytest
from models import small_mdlm
from planted import write_texts

from arcmask.checkpoint import save
from arcmask.data import PrepareConfig, open_tokenizer, prepare
from arcmask.training import TrainConfig, train


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """data/ (prepared text8 rows of 16), model/ (without feedback) and runs/fed/ (four steps with feedback)."""
    home = tmp_path_factory.mktemp("home")
    texts = write_texts(tmp_path_factory.mktemp("texts"), ["the", "cat", "sat", "on", "a", "mat"])
    settings = {"tokenizer": "text8", "length": 16, "holdout": "every:5"}
    prepare(PrepareConfig(corpus=str(texts), out=str(home / "data"), **settings))
    model = small_mdlm(vocab_size=28)
    model.tokenizer = open_tokenizer("text8")
    save(model, home / "model")
    config = TrainConfig(
        data=str(home / "data"),
        init=str(home / "model"),
        centre=-2.5,
        steepness=2.0,
        gate_probability=1.0,
        steps=4,
        batch_size=4,
        warm_up=1,
        validate_every=0,
        precision="float32",
    )
    train(config, home / "runs" / "fed")
    return home
