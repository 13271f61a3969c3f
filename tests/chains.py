"""A small random model of AntiBERTy's shape, and sequences as padded rows. Nothing is fetched."""

import json
import random
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from arcmask.data import PrepareConfig, open_tokenizer, prepare
from arcmask.data.tokenizers import RESIDUES

LONGEST = 40  # positions of the model


@pytest.fixture(scope="session")
def chain_model(tmp_path_factory) -> str:
    """A BERT in float64, so that samples of different batches agree bit for bit."""
    folder = tmp_path_factory.mktemp("chain-model")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    settings = BertConfig(**size, vocab_size=25, max_position_embeddings=LONGEST, initializer_range=0.3)
    BertForMaskedLM(settings).double().save_pretrained(folder)
    open_tokenizer("residues").save(folder)
    return str(folder)


@pytest.fixture(scope="session")
def chains() -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(RESIDUES, k=draw.randint(20, 30))) for _ in range(48)]


@pytest.fixture(scope="session")
def chain_data(chains, tmp_path_factory) -> str:
    """Rows of one chain each, padded; the last 12 are held out."""
    folder: Path = tmp_path_factory.mktemp("chains")
    lines = [json.dumps({"text": chain}) + "\n" for chain in chains]
    (folder / "chains.jsonl").write_text("".join(lines))
    settings = {"tokenizer": "residues", "length": 32, "pack": "none", "holdout": "last:12"}
    prepare(PrepareConfig(corpus=str(folder / "chains.jsonl"), out=str(folder / "data"), **settings))
    return str(folder / "data")
