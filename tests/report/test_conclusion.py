"""The conclusion says what the run folder holds, and nothing else."""

import json
import shutil

import numpy as np
import pytest
from made_up import ARMS, BUDGETS, FROZEN, SEEDS, generation_point, make_curves, make_experiment
from scipy import stats

from arcmask.diagnostics.gain import GainCurve
from arcmask.report.chapters import experiment_chapter
from arcmask.report.comparisons import comparisons
from arcmask.report.conclusion import Effect, bound_effect, conclusion, generation_effect, sentence, training_note
from arcmask.report.folder import read_run
from arcmask.report.quantities import HEADLINES


def conclude(folder) -> str:
    experiment = read_run(folder)
    return conclusion(experiment, comparisons(experiment))


def test_the_best_weight_of_the_best_operator_is_named(tmp_path):
    gain, generation = make_curves(tmp_path, b"")
    assert set(gain) <= set(GainCurve.__dataclass_fields__)
    effects = bound_effect(gain) + generation_effect(generation)
    assert sentence("Without training", effects) == (
        "Without training, spherical feedback at weight 0.1 lowers the held-out bound by 0.0105 \u00b1 0.0012 nats per "
        "token, and linear feedback at weight 0.3 raises the share of real words by 5.0 \u00b1 2.1 points at equal "
        "entropy"
    )


def test_an_interval_that_contains_zero_shows_no_difference():
    curve = {"weights": [0.0, 0.1], "difference": {"linear": [0.0, -0.0011]}, "half_width": {"linear": [0.0, 0.0012]}}
    (effect,) = bound_effect(curve)
    assert sentence("There", [effect, Effect(effect.subject, HEADLINES["mauve"], 0.1, 0.2)]) == (
        "There, linear feedback at weight 0.1 shows no difference in the held-out bound (\u22120.0011 \u00b1 0.0012 "
        "nats per token) and MAUVE (+0.100 \u00b1 0.200)"
    )


@pytest.mark.parametrize(("better", "setting"), [("lower", 0.3), ("higher", 0.1)])
def test_the_best_point_has_the_best_gain_at_equal_entropy(better, setting):
    points = [generation_point(0.1, 0.2, 0.1), generation_point(0.3, -0.4, 0.1), generation_point(0.5, None, None)]
    curve = {"quality": "loss under x", "unit": "nats per token", "better": better, "operators": {"linear": points}}
    (effect,) = generation_effect(curve)
    assert effect.subject == f"linear feedback at weight {setting}"
    assert effect.verb == {"lower": "lowers", "higher": "raises"}[better]
    size = {"lower": 0.4, "higher": 0.2}[better]
    assert effect.object == f"the loss under x by {size:.3f} \u00b1 0.100 nats per token at equal entropy"


def test_a_subject_is_not_repeated():
    effects = [Effect("it", HEADLINES["entropy"], -0.2, 0.1), Effect("it", HEADLINES["mauve"], 0.2, 0.1, " at T = 4")]
    expected = (
        "There, it lowers the entropy of a sample by 0.200 \u00b1 0.100 nats and raises MAUVE by 0.200 \u00b1 0.100"
    )
    assert sentence("There", effects) == f"{expected} at T = 4"
    assert sentence("There", []) == ""


def test_training_is_the_paired_difference_of_the_best_arm(experiment_folder):
    def values(arm: str, name: str) -> list[dict]:
        return [json.loads((experiment_folder / arm / f"seed-{seed}" / name).read_text()) for seed in SEEDS]

    bounds = [
        [v.get("two_pass", v["plain"])["nats"] for v in values(a, "likelihood.json")] for a in ("spherical", "none")
    ]
    scores = [
        [100 * v["scores"]["real_word_rate"]["value"] for v in values(arm, "steps-64/scores.json")]
        for arm in ("spherical", "none")
    ]
    numbers = []
    for pair in (bounds, scores):
        low, high = stats.ttest_rel(*pair).confidence_interval(0.95)
        numbers.append((abs(np.mean(pair[0]) - np.mean(pair[1])), (high - low) / 2))
    assert conclude(experiment_folder) == (
        "Compared with the same training without feedback, the arm \u201cspherical\u201d lowers the held-out bound by "
        f"{numbers[0][0]:.4f} \u00b1 {numbers[0][1]:.4f} nats per token and raises the share of real words by "
        f"{numbers[1][0]:.1f} \u00b1 {numbers[1][1]:.1f} points at T = 64; \u00b1 is a 95 % confidence interval."
    )


def test_the_page_opens_with_both_sentences(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "curves")
    make_curves(folder, b"\x89PNG\r\n\x1a\n" + bytes(16))
    text = conclude(folder)
    assert text.startswith("Without training, spherical feedback at weight 0.1 lowers")
    assert text.endswith(conclude(experiment_folder))
    section = experiment_chapter(read_run(folder), "x").sections[0]
    assert (section.blocks[0].kind, section.blocks[0].text) == ("lead", text)
    assert section.blocks[1].items[0].name == "forest"


@pytest.mark.parametrize(
    "change", [{"seeds": (1,)}, {"arms": {"spherical": ("spherical", {"operator": "spherical"}, 0.0)}}]
)
def test_where_nothing_is_known_nothing_is_concluded(change, tmp_path):
    folder = make_experiment(tmp_path / "little", **change)
    assert conclude(folder) == ""
    assert "lead" not in [block.kind for block in experiment_chapter(read_run(folder), "x").sections[0].blocks]


def test_what_training_itself_changes_is_said_in_words(tmp_path):
    folder = make_experiment(tmp_path / "both", arms=FROZEN | ARMS)
    experiment = read_run(folder)
    compared = comparisons(experiment)
    (rate,) = [
        c.difference
        for c in compared
        if (c.pair.first.name, c.pair.second.name, c.score, c.budget) == ("none", "base", "real_word_rate", BUDGETS[-1])
    ]
    note = training_note(experiment, compared)
    assert note.startswith("Compared with the base, the trained arm \u201c")
    assert f"{100 * abs(rate.mean):.1f} \u00b1 {100 * rate.half_width:.1f} points" in note
    assert note in experiment_chapter(experiment, "x").sections[0].blocks[2].text
    for arms in (ARMS, {name: (FROZEN | ARMS)[name] for name in ("base", "none")}):
        other = read_run(make_experiment(tmp_path / str(len(arms)), arms=arms))
        assert training_note(other, comparisons(other)) == "", "the headlines say it, or there is no base"
