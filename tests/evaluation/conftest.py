"""An evaluator that is small, also as a folder; and a cache that is nobody else's."""

from pathlib import Path

import pytest
import torch
from evaluators import TOKENIZER, small_gpt2

from arcmask.downloads import cache_folder
from arcmask.evaluation import Evaluator
from arcmask.evaluation.evaluator import make_evaluator


@pytest.fixture(scope="session")
def evaluator() -> Evaluator:
    return make_evaluator("small", "0" * 64, small_gpt2(), TOKENIZER.inner)


@pytest.fixture(scope="session")
def evaluator_folder(tmp_path_factory) -> Path:
    """The same as a folder."""
    folder = tmp_path_factory.mktemp("evaluator")
    small_gpt2().save_pretrained(folder)
    TOKENIZER.inner.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder, tokenizers = tmp_path / "cache", cache_folder() / "tokenizers"
    folder.mkdir()
    (folder / "tokenizers").symlink_to(tokenizers)  # what was downloaded once serves all tests
    monkeypatch.setenv("ARCMASK_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small gain nothing from a second thread, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
