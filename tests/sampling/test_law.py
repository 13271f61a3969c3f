"""The exact law of every sampler, from enumeration, against 20,000 samples. Wrong laws must be rejected.

A sampler whose law q is off by sum (q - p)^2 / p = 0.0033 fails with a probability of 99 %. The wrong laws that are
tried here are off by 0.038 at least. The slow tests take 100,000 samples, which find a fifth of that.
"""

from collections.abc import Callable

import pytest
import tables
import torch
from scipy.stats import chisquare
from tables import DENOISER, STATES

from arcmask.feedback import Confidence, SoftMask
from arcmask.sampling import sample
from arcmask.sampling.rules import RemaskCap, RemaskLoop


def soft_mask() -> SoftMask:
    confidence = Confidence(scale=tables.SCALE, centre=tables.CENTRE, steepness=tables.STEEPNESS)
    return SoftMask("spherical", top_k=tables.TOP_K, karcher_steps=tables.STEPS, confidence=confidence)


@pytest.fixture(params=[20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def counts(request) -> Callable[..., list[int]]:
    """A function that draws samples with some settings, and counts each of the possible ones."""

    def count(**settings) -> list[int]:
        samples = sample(DENOISER, num=request.param, seed=11, batch_size=25_000, **settings)
        codes = samples.tokens @ torch.tensor([9, 3, 1])
        return torch.bincount(codes, minlength=len(STATES)).tolist()

    return count


def p_value(frequencies: list[int], law: list[float]) -> float:
    assert sum(law) == pytest.approx(1)
    total = sum(frequencies)
    seen = [(n, total * p) for n, p in zip(frequencies, law, strict=True) if p > 0]
    assert sum(n for n, _ in seen) == total, "a sample that cannot occur"
    # Few expected counts make the test's own law wrong, so that rare outcomes are taken together.
    rare = [pair for pair in seen if pair[1] < 10]
    pairs = [pair for pair in seen if pair[1] >= 10]
    if rare:
        pairs.append((sum(n for n, _ in rare), sum(e for _, e in rare)))
    observed, expected = zip(*pairs, strict=True)
    return chisquare(observed, expected).pvalue


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_ancestral_samples_follow_their_exact_law(steps, feedback, counts):
    frequencies = counts(steps=steps, feedback=soft_mask() if feedback else None)
    assert p_value(frequencies, tables.ancestral_law(steps, feedback=feedback)) > 1e-3


def test_broken_samplers_would_be_found_out(counts):
    """The test rejects laws that are off by one step in the rate or in the feedback."""
    frequencies = counts(steps=5, feedback=soft_mask())
    assert p_value(frequencies, tables.ancestral_law(5, feedback=True)) > 1e-3
    assert p_value(frequencies, tables.ancestral_law(5, feedback=False)) < 1e-6
    assert p_value(frequencies, tables.ancestral_law(5, feedback=True, late=1)) < 1e-6
    assert p_value(frequencies, tables.ancestral_law(5, feedback=True, wrong_rate=True)) < 1e-6


@pytest.mark.parametrize("steps", [5, 8])
def test_samples_that_reuse_predictions_follow_their_own_law(steps, counts):
    law = tables.ancestral_law(steps, feedback=True, reuse=True)
    frequencies = counts(steps=steps, feedback=soft_mask(), reuse=True)
    assert p_value(frequencies, law) > 1e-3
    assert p_value(frequencies, tables.ancestral_law(steps, feedback=True)) < 1e-6
    # Without feedback there is nothing to lose: the same prediction would be computed again.
    assert tables.ancestral_law(steps, feedback=False, reuse=True) == tables.ancestral_law(steps, feedback=False)


@pytest.mark.slow
def test_remasking_samples_that_reuse_predictions_follow_their_own_law(counts):
    frequencies = counts(steps=4, rule=RemaskCap(cap=0.3), feedback=soft_mask(), reuse=True)
    assert p_value(frequencies, tables.ancestral_law(4, feedback=True, rate=lambda _: 0.3, reuse=True)) > 1e-3


@pytest.mark.parametrize(("steps", "groups"), [(3, [1, 1, 1]), (2, [1, 2]), (1, [3])])
def test_first_hitting_samples_follow_their_exact_law(steps, groups, counts):
    frequencies = counts(steps=steps, rule="first-hitting", feedback=None)
    assert p_value(frequencies, tables.first_hitting_law(groups)) > 1e-3
    if steps > 1:
        assert p_value(frequencies, tables.first_hitting_law([3])) < 1e-6


@pytest.mark.parametrize(("steps", "groups"), [(3, [1, 1, 1]), (2, [1, 2])])
def test_confident_samples_follow_their_exact_law(steps, groups, counts):
    frequencies = counts(steps=steps, rule="confidence", feedback=None)
    assert p_value(frequencies, tables.confidence_law(groups)) > 1e-3
    assert p_value(frequencies, tables.first_hitting_law(groups)) < 1e-6


@pytest.mark.parametrize("feedback", [False, True])
def test_remasking_samples_follow_their_exact_law(feedback, counts):
    frequencies = counts(steps=3, rule=RemaskCap(cap=0.3), feedback=soft_mask() if feedback else None)
    assert p_value(frequencies, tables.ancestral_law(3, feedback=feedback, rate=lambda _: 0.3)) > 1e-3
    assert p_value(frequencies, tables.ancestral_law(3, feedback=feedback)) < 1e-6


def test_looped_samples_follow_their_exact_law(counts):
    rule = RemaskLoop(rate=0.4, held=0.6, start=0.7, stop=0.3)
    frequencies = counts(steps=4, rule=rule, feedback=None)
    law = tables.ancestral_law(
        4,
        feedback=False,
        alpha=lambda time: tables.loop_alpha(time, 0.6, 0.7, 0.3),
        rate=lambda time: 0.4 if 0.3 < time <= 0.7 else 0.0,
    )
    assert p_value(frequencies, law) > 1e-3
    assert p_value(frequencies, tables.ancestral_law(4, feedback=False)) < 1e-6


@pytest.mark.parametrize("top_p", [0.5, 0.8])
def test_nucleus_samples_follow_their_exact_law(top_p, counts):
    frequencies = counts(steps=3, top_p=top_p, feedback=None)
    assert p_value(frequencies, tables.ancestral_law(3, feedback=False, top_p=top_p)) > 1e-3
