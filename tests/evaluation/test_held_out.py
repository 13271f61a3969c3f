"""The likelihood on a prepared folder. That the bound is the exact one is held in test_objective, by enumeration."""

import math

import numpy as np
import pytest
import torch
from models import small_mdlm
from torch import nn

from arcmask.data import PrepareConfig, open_prepared, prepare
from arcmask.errors import ArcmaskError
from arcmask.evaluation import likelihood
from arcmask.feedback import Confidence, SoftMask
from arcmask.objective import TwoPass, likelihood_bound

SYMBOLS, MASK = 28, 27


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(20):
        (folder / f"{number:02d}.txt").write_text(f"the cat number {number} sat on the mat and ran off again " * 9)
    out = str(folder / "prepared")
    prepare(PrepareConfig(corpus=str(folder), out=out, tokenizer="text8", length=16, holdout="every:4"))
    return out


class Unigram(nn.Module):
    """Predicts the same frequencies everywhere, so that the exact value is their cross-entropy with the rows."""

    mask_id, max_length = MASK, None

    def __init__(self, frequencies: torch.Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(SYMBOLS, 2))
        self.scores = nn.Parameter(frequencies.log())

    def hidden(self, embeddings):
        return embeddings

    def logits(self, rows):
        return self.scores.expand(len(rows), SYMBOLS).clone()


def test_the_likelihood_of_a_model_of_frequencies_is_their_cross_entropy(data):
    frequencies = torch.arange(1.0, SYMBOLS + 1)
    frequencies[MASK] = 1e9  # whatever it says of the mask is not asked for
    found = likelihood(Unigram(frequencies), data, seed=1)
    assert found.keys() == {"plain"}, "no feedback, no second pass"
    corpus = open_prepared(data, "validation")
    rows = corpus.rows(np.arange(len(corpus)))
    probs = frequencies[:MASK] / frequencies[:MASK].sum()
    expected = float(-probs.log()[rows].mean())
    plain = found["plain"]
    assert abs(plain["nats"] - expected) < 3 * plain["standard_error"] < 0.3 * expected
    assert plain["perplexity"] == pytest.approx(math.exp(plain["nats"]))
    # A byte of text8 is a token.
    assert plain["bits_per_byte"] == pytest.approx(plain["nats"] / math.log(2), rel=1e-6)
    assert (plain["rows"], plain["tokens"], plain["tokenizer"], plain["seed"]) == (len(rows), rows.numel(), "text8", 1)


def test_two_passes_are_the_objectives_own_on_the_same_noise(data):
    model = small_mdlm(vocab_size=SYMBOLS)
    model.feedback = SoftMask(confidence=Confidence(fixed=0.4))
    found = likelihood(model, data, rows=20, seed=3, batch_size=8)
    corpus = open_prepared(data, "validation")
    chosen = corpus.spread(20, seed=3)
    batches = [corpus.rows(chosen[start : start + 8]) for start in (0, 8, 16)]
    for kind, fed in (("plain", False), ("two_pass", True)):
        expected = likelihood_bound(TwoPass(model, model.feedback), batches, feedback=fed, seed=3)
        assert found[kind]["nats"] == expected.nats
        assert found[kind]["standard_error"] == expected.standard_error
    assert found["plain"]["nats"] != found["two_pass"]["nats"]
    assert found["two_pass"]["feedback"] == "spherical"


def test_one_row_has_no_standard_error(data):
    assert likelihood(small_mdlm(vocab_size=SYMBOLS), data, rows=1)["plain"]["standard_error"] is None


def test_a_model_that_does_not_fit_the_folder_is_refused(data):
    with pytest.raises(ArcmaskError, match="token ids"):
        likelihood(small_mdlm(), data)
    with pytest.raises(ArcmaskError, match="rows is 0"):
        likelihood(small_mdlm(vocab_size=SYMBOLS), data, rows=0)
