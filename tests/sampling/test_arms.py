"""One sample by several arms: shared draws, the texts of `sample`, and settings that are checked before loading."""

import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.sampling import SampleConfig, sample
from arcmask.sampling.side_by_side import trace_arms
from arcmask.settings.explore import ExploreConfig

ARMS = ("spherical", "linear", "none")


@pytest.fixture(scope="module")
def model():
    model = small_mdlm(vocab_size=28, model_length=160)
    model.feedback = SoftMask(confidence=Confidence(fixed=0.4))
    model.tokenizer = open_tokenizer("text8")
    return model


def trace(model, operators=ARMS, **settings):
    config = SampleConfig(checkpoint="here", **{"steps": 8, **settings})
    return trace_arms(ExploreConfig(sample=config, feedback=operators), lambda _: model)


@pytest.mark.parametrize("rule", ["ancestral", "confidence", "remask-cap"])
def test_every_arm_is_what_the_sampler_gives(model, rule):
    traces = trace(model, prompt="we are ", length=24, rule=rule, seed=3)
    for arm, name in zip(traces.arms, ARMS, strict=True):
        alone = sample(model, steps=8, prompt="we are ", length=24, rule=rule, seed=3, feedback=name, trace=True)
        assert arm.text == alone.texts[0]
        assert arm.trace == alone.traces[0].to_json()
        assert arm.calls == int(alone.calls[0])
        joined = b"".join(traces.pieces[token] for token in arm.trace["tokens"])
        assert joined.decode() == arm.text


def test_arms_of_one_seed_reveal_the_same_positions(model):
    traces = trace(model)
    order = [[[position for position, _ in step["revealed"]] for step in arm.trace["steps"]] for arm in traces.arms]
    assert order[0] == order[1] == order[2]
    assert sum(map(len, order[0])) > 100


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({}, 128),
        ({"prompt": "a" * 70}, 140),
        ({"prompt": "a" * 100}, 160),
        ({"prompt": "a[MASK]b"}, 3),
        ({"length": 7}, 7),
    ],
)
def test_the_length_is_what_fits_a_screen_or_twice_the_prompt(model, settings, length):
    assert trace(model, ("none",), **settings).length == length


def test_a_trace_can_be_played_from_its_start_to_its_end(model):
    for arm in trace(model, rule="remask-loop", length=40, steps=24).arms:
        tokens = list(arm.trace["start"])
        for step in arm.trace["steps"]:
            for position in (row[0] for row in step["masked"]):
                tokens[position] = model.mask_id
            for position, token in step["revealed"]:
                assert tokens[position] == model.mask_id
                tokens[position] = token
        for position in arm.trace["filled"]:
            tokens[position] = arm.trace["tokens"][position]
        assert tokens == arm.trace["tokens"]


@pytest.mark.parametrize(
    ("operators", "settings", "sentence"),
    [
        (("spheric",), {}, "unknown operator 'spheric'; did you mean 'spherical'"),
        (("none",), {"rule": "x"}, "unknown step rule 'x'"),
        (("none",), {"steps": 0}, "steps is 0"),
        (("none",), {"seed": -1}, "the seed is -1"),
        (("none",), {"top_p": 2.0}, "top_p is 2.0"),
    ],
)
def test_bad_settings_are_said_before_the_checkpoint_is_opened(operators, settings, sentence):
    def load(_):
        raise AssertionError("opened")

    with pytest.raises(ArcmaskError, match=sentence):
        trace_arms(ExploreConfig(sample=SampleConfig(checkpoint="here", **settings), feedback=operators), load)


def test_what_does_not_fit_the_model_is_one_sentence(model):
    with pytest.raises(ArcmaskError, match="the prompt has 200 tokens, but a sample has 160 positions"):
        trace(model, prompt="a" * 200)
    with pytest.raises(ArcmaskError, match="the length is 161, but the model takes at most 160"):
        trace(model, length=161)
    with pytest.raises(ArcmaskError, match="here has no tokenizer, so there is no text to show"):
        trace(small_mdlm())


@torch.no_grad()
def test_blanks_of_the_trace_are_where_the_operators_put_them(model):
    """The norm and angle of the blend agree with the operators."""
    for arm in trace(model, length=24, steps=12).arms[:2]:
        before = {}
        checked = 0
        for step in arm.trace["steps"]:
            for position, weight, angle, _, ids, probs, _, blend in step["masked"]:
                if blend is not None:
                    mask, points = model.table[model.mask_id], model.table[before[position][0]]
                    mean = before[position][1] @ points
                    _, mean_norm, turned, norm = blend
                    assert mean_norm == pytest.approx(float(mean.norm() / mask.norm()), abs=2e-3)
                    if arm.operator.name == "linear":
                        expected = torch.lerp(mask, mean, weight).norm() / mask.norm()
                        assert norm == pytest.approx(float(expected), abs=2e-3)
                    else:
                        assert norm == pytest.approx(1, abs=1e-3)
                        assert turned == pytest.approx(weight * angle, abs=2e-3)
                    checked += 1
                before[position] = (ids, torch.tensor(probs))
        assert checked > 30


def test_weights_that_are_all_extreme_are_said(capsys):
    denoiser = arcmask.load("sotu-tiny")
    settings = SampleConfig(checkpoint="x", steps=6, length=16)
    for centre, is_said in ((-4.0, True), (-1.5, False)):
        denoiser.feedback = SoftMask("linear", confidence=Confidence(centre=centre, steepness=6.0))
        trace_arms(ExploreConfig(sample=settings, feedback=("linear", "none")), lambda _: denoiser)
        assert ("linear: the feedback weights are all near their top" in capsys.readouterr().err) == is_said
