"""Tuning of a frozen model: it finds the best point of a fine grid, and leaves the model alone."""

from itertools import product

import numpy as np
import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.diagnostics.gain import Drafts
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.tuning import EVALUATIONS, fit

NEAR = 0.001 * 0.6931  # nats: a thousandth of a bit
SCALES, STEEPNESSES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99), (0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 12)


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
    assert bound(tuned.feedback.confidence.fixed) <= best + NEAR


class Valley:
    """Drafts of a model whose bound rises with the square of the distance from the best weight at each entropy."""

    def __init__(self, entropy, best):
        self.entropy, self.best, self.calls = torch.tensor(entropy), torch.tensor(best(entropy)), 0

    def two_pass(self, feedback):
        self.calls += 1
        return self.loss(feedback.confidence).reshape(1), 0.0, 1.0

    @torch.no_grad()
    def loss(self, confidence):
        # In sotu-tiny a weight that is wrong by 0.06 everywhere costs about 0.0045 bits.
        return 0.87 * (confidence(self.entropy) - self.best).square().mean()


ENTROPIES = {
    "characters": np.linspace(0.0, 1.0, 400) ** 0.6 * 2.9,
    "a large vocabulary": np.linspace(0.0, 1.0, 400) ** 1.5 * 9.0,
    "a certain model": np.random.default_rng(0).exponential(0.15, 400),
}
BEST = {
    "falls with the entropy": lambda entropy: 0.5 * np.exp(-1.5 * entropy),
    "falls at once": lambda entropy: 0.4 / (1 + np.exp(8 * (entropy - 1.2))),
    "is small": lambda entropy: np.full_like(entropy, 0.06),
    "is large": lambda entropy: 0.8 / (1 + np.exp(2 * (entropy - 2.5))),
    "is zero": lambda entropy: np.zeros_like(entropy),
}


@pytest.mark.parametrize(("entropy", "best"), [*product(ENTROPIES, BEST)])
def test_three_scalars_are_near_the_best_point_of_a_fine_grid(entropy, best, monkeypatch):
    drafts = Valley(ENTROPIES[entropy], BEST[best])
    monkeypatch.setattr("arcmask.tuning.Drafts", lambda *_, **__: drafts)
    fitted = fit(small_mdlm(), torch.zeros(4, 8, dtype=torch.long))
    centres = -np.linspace(0.001, 1.0, 12) * ENTROPIES[entropy].max()
    grid = [drafts.loss(Confidence(*point)) for point in product(SCALES, centres.tolist(), STEEPNESSES)]
    assert drafts.loss(fitted.confidence) <= min(grid) + NEAR
    assert drafts.calls <= EVALUATIONS[False]


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["linear", "spherical"])
def test_three_scalars_of_the_shipped_model_are_near_the_best_point_of_a_fine_grid(rows, operator):
    denoiser = arcmask.load("sotu-tiny")
    drafts = Drafts(denoiser, rows)
    bound = lambda *point: float(drafts.two_pass(SoftMask(operator, confidence=Confidence(*point)))[0].mean())  # noqa: E731
    centres = (-0.001, -0.2, -0.5, -0.9, -1.4, -2.0)
    best = min(bound(*point) for point in product(SCALES[2:], centres, STEEPNESSES[1:8]))
    fitted = fit(denoiser, rows, operator).confidence
    assert bound(fitted.scale.item(), fitted.centre.item(), fitted.steepness.item()) <= best + NEAR


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
    with pytest.raises(ArcmaskError, match=r"4 rows or more"):
        arcmask.tune(small_mdlm(), rows[:2] % 22)
