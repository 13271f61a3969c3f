"""Tuning of a frozen model: it finds the best point of a fine grid, and leaves the model alone."""

import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.diagnostics.gain import Drafts
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask


@pytest.fixture(scope="module")
def rows():
    text = "the people of the united states and the congress of this nation have a duty to the laws of the land "
    tokenizer = arcmask.load("sotu-tiny").tokenizer
    ids = torch.tensor(tokenizer.encode(text * 6))
    return ids[: 16 * 32].reshape(16, 32)


def test_the_best_fixed_weight_is_that_of_a_fine_grid(rows):
    denoiser = arcmask.load("sotu-tiny")
    fit = rows[:12]
    tuned = arcmask.tune(denoiser, rows, "linear", fixed=True)
    drafts = Drafts(denoiser, fit)
    bound = lambda weight: float(drafts.two_pass(SoftMask("linear", confidence=Confidence(fixed=weight)))[0].mean())  # noqa: E731
    best = min(bound(weight / 25) for weight in range(1, 23))
    assert bound(tuned.feedback.confidence.fixed) <= best + 0.001 * 0.6931


def test_the_learned_weight_is_no_worse_than_the_fixed_one_and_the_backbone_stays(rows):
    denoiser = arcmask.load("sotu-tiny")
    before = {name: value.clone() for name, value in denoiser.state_dict().items()}
    tuned = arcmask.tune(denoiser, rows, "spherical", seed=2)
    fixed = arcmask.tune(denoiser, rows, "spherical", fixed=True, seed=2)
    drafts = Drafts(denoiser, rows[:12], seed=2)
    learned_bound, fixed_bound = (float(drafts.two_pass(t.feedback)[0].mean()) for t in (tuned, fixed))
    assert learned_bound <= fixed_bound + 1e-4
    assert all(torch.equal(value, before[name]) for name, value in denoiser.state_dict().items())
    assert tuned.rows == 4
    assert tuned.feedback.confidence.fixed is None


def test_the_same_seed_gives_the_same_feedback():
    rows = torch.randint(0, 22, (8, 16), generator=torch.Generator().manual_seed(0))
    first, second = (arcmask.tune(small_mdlm(), rows, fixed=True, seed=5) for _ in range(2))
    assert first.feedback.settings() == second.feedback.settings()
    assert first.difference == second.difference


def test_bad_input_is_one_sentence(rows):
    with pytest.raises(ArcmaskError, match="unknown goal 'x'; choose one of: bound"):
        arcmask.tune(small_mdlm(), rows, goal="x")
    with pytest.raises(ArcmaskError, match="unknown operator 'x'"):
        arcmask.tune(small_mdlm(), rows % 22, "x")
    with pytest.raises(ArcmaskError, match=r"four rows or more"):
        arcmask.tune(small_mdlm(), rows[:2] % 22)
