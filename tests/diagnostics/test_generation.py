"""Quality against entropy: equal to direct scores, paired samples, and a comparison at equal entropy."""

import json

import numpy as np
import pytest
import torch
from evaluators import TOKENIZER, small_gpt2
from models import small_mdlm

import arcmask
from arcmask.diagnostics import Generator, InspectConfig, generation_curve, inspect, real_words
from arcmask.diagnostics.generation import compare
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference
from arcmask.evaluation.scores import entropy_score, real_word_score
from arcmask.feedback import Confidence, SoftMask

WEIGHTS, TEMPERATURES = (0.2, 0.6), (1.0, 0.5)


@pytest.fixture(scope="module")
def denoiser(home):
    return arcmask.load(home / "model")


@pytest.fixture(scope="module")
def reference(home):
    return Reference(str(home / "data")).words()


@pytest.fixture(scope="module")
def generator(denoiser, reference):
    return Generator(denoiser=denoiser, quality=real_words(reference), samples=12, length=16, steps=6, seed=4)


@pytest.fixture(scope="module")
def curve(generator):
    return generation_curve(generator, ["linear", "spherical"], WEIGHTS, TEMPERATURES)


def test_every_point_is_the_score_of_its_samples(denoiser, reference, curve):
    def check(point, **settings):
        samples = arcmask.sample(denoiser, 12, 16, 6, seed=4, **settings)
        words = real_word_score(samples.texts, reference, 0)["value"]
        entropy = entropy_score(samples.tokens.tolist(), "text8", 0)["value"]
        assert point.quality == pytest.approx(100 * (words or 0.0))
        assert point.entropy == pytest.approx(entropy)

    for name, column in curve.operators.items():
        for point, weight in zip(column, WEIGHTS, strict=True):
            assert point.setting == weight
            check(point, feedback=SoftMask(name, confidence=Confidence(fixed=weight)))
    for point, temperature in zip(curve.plain, TEMPERATURES, strict=True):
        check(point, feedback=None, temperature=temperature)


def test_all_cells_share_their_random_numbers(generator):
    plain, zero = generator.counts(None), generator.counts(SoftMask("linear", confidence=Confidence(fixed=0.0)))
    assert np.array_equal(plain, zero)
    point = compare(zero, [plain, plain], 0.0)
    assert (point.difference, point.half_width) == (0.0, 0.0)


def test_the_gain_is_the_distance_from_a_line_through_plain_sampling():
    draw = np.random.default_rng(0)
    cells = [np.column_stack([draw.integers(0, 9, 40), np.full(40, 9), draw.uniform(1, 2, 40)]) for _ in range(4)]
    point = compare(cells[0], cells[1:], 0.3, scale=100.0)
    quality = [100 * cell[:, 0].sum() / cell[:, 1].sum() for cell in cells]
    entropy = [cell[:, 2].mean() for cell in cells]
    slope, offset = np.polyfit(entropy[1:], quality[1:], 1)
    assert point.quality == pytest.approx(quality[0])
    assert point.difference == pytest.approx(quality[0] - quality[1])
    assert point.gain == pytest.approx(quality[0] - (offset + slope * entropy[0]))
    # Equal denominators make the quality a mean, whose interval is known.
    error = 100 * (cells[0][:, 0] / 9).std(ddof=1) / 40**0.5
    assert point.quality_half_width == pytest.approx(1.96 * error, rel=0.1)


def test_pairing_removes_the_noise_that_cells_share():
    draw = np.random.default_rng(1)
    noise = draw.normal(0, 5, 200)
    plain, hot, fed = (
        np.column_stack([50 + shift + noise + draw.normal(0, 0.1, 200), np.ones(200), draw.uniform(1, 2, 200)])
        for shift in (0, 1, 3)
    )
    point = compare(fed, [plain, hot], 0.2)
    assert point.difference == pytest.approx(3, abs=0.1)
    assert point.half_width < 0.05 < 0.5 < point.quality_half_width


def test_the_reading_says_whether_feedback_gains_at_equal_entropy(curve):
    name, point = curve.best
    gains = [other.gain for column in curve.operators.values() for other in column]
    assert point.gain == max(gains)
    is_sure = point.gain > point.gain_half_width
    assert ("improves samples without any training" in curve.reading) == is_sure
    assert name in curve.operators


def test_inspect_generates_if_it_is_asked_to(home, tmp_path):
    settings = {"checkpoint": str(home / "model"), "data": str(home / "data"), "samples": 4, "steps": 2}
    options = {"only": ("generation",), "operators": ("linear",), "out": str(tmp_path / "out")}
    found = inspect(InspectConfig(**settings, **options))
    assert list(found.readings) == ["generation"]
    record = json.loads((tmp_path / "out" / "generation.json").read_text())
    assert (record["samples"], record["steps"], record["length"]) == (4, 2, 16)
    assert [len(record["operators"]["linear"]), len(record["plain"])] == [3, 3]
    assert "generation" in InspectConfig(checkpoint="x", generate=True).names
    assert "generation" not in InspectConfig(checkpoint="x").names


def test_an_evaluator_can_be_the_quality(home, tmp_path, monkeypatch):
    small_gpt2().save_pretrained(tmp_path / "gpt2")
    TOKENIZER.inner.save_pretrained(tmp_path / "gpt2")
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "cache"))
    settings = {"checkpoint": str(home / "model"), "data": str(home / "data"), "samples": 3, "steps": 2}
    options = {
        "only": ("generation",),
        "operators": ("linear",),
        "evaluator": str(tmp_path / "gpt2"),
        "out": str(tmp_path / "out"),
    }
    assert inspect(InspectConfig(**settings, **options)).readings
    record = json.loads((tmp_path / "out" / "generation.json").read_text())
    assert record["better"] == "lower"
    assert record["quality"].startswith("loss under ")


def test_bad_input_is_one_sentence(denoiser, reference):
    quality = real_words(reference)
    with pytest.raises(ArcmaskError, match="the model has no tokenizer"):
        Generator(denoiser=small_mdlm(), quality=quality, samples=4)
    with pytest.raises(ArcmaskError, match="samples is 1, but an interval needs 2 or more"):
        Generator(denoiser=denoiser, quality=quality, samples=1)
    with pytest.raises(ArcmaskError, match="samples is 0, but must lie between 2 and"):
        InspectConfig(checkpoint="x", samples=0)


@pytest.mark.parametrize("texts", [["EVQLVESGGG", "QVQLVQSGAE"], ["two words"], []])
def test_real_words_are_refused_for_texts_without_words(texts):
    with pytest.raises(ArcmaskError, match=r"no text of chains has a word between .* evaluator \(--evaluator NAME"):
        real_words(Reference("chains", texts).words())


def test_tuning_for_generation_measures_the_best_weight_on_fresh_seeds(denoiser, reference):
    rows = torch.zeros(4, 16, dtype=torch.long)
    quality = real_words(reference)
    tuned = arcmask.tune(denoiser, rows, "linear", goal="generation", seed=4, quality=quality, samples=12, steps=6)
    weight = tuned.feedback.confidence.fixed
    assert tuned.curve is not None
    (point,) = tuned.curve.operators["linear"]
    assert (point.setting, tuned.difference, tuned.half_width) == (weight, point.gain, point.gain_half_width)
    fresh = arcmask.sample(denoiser, 12, 16, 6, seed=5, feedback=tuned.feedback)
    words = real_word_score(fresh.texts, reference, 0)["value"]
    assert point.quality == pytest.approx(100 * (words or 0.0))
    with pytest.raises(ArcmaskError, match="the model has no tokenizer"):
        arcmask.tune(small_mdlm(), rows, goal="generation")
