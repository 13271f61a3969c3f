"""Samples: reproducible, independent of batches, consistent with prompts under every rule, with correct call counts."""

import inspect
import json
import warnings
from dataclasses import fields

import numpy as np
import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence, SoftMask
from arcmask.model import MDLM
from arcmask.sampling import RULES, Filter, SampleConfig, sample
from arcmask.sampling.draws import Draws
from arcmask.sampling.rules import RemaskCap, RemaskLoop

pytestmark = pytest.mark.filterwarnings("ignore:the model has no feedback of its own")


@pytest.fixture(scope="module")
def model() -> MDLM:
    model = small_mdlm(vocab_size=28, model_length=24).double()
    model.tokenizer = open_tokenizer("text8")
    return model


def soft_mask(operator: str = "spherical", fixed: float | None = None) -> SoftMask:
    confidence = Confidence(scale=0.8, centre=-2.5, steepness=2.0) if fixed is None else Confidence(fixed=fixed)
    return SoftMask(operator, confidence=confidence)


class Counting:
    """A denoiser that counts the sequences and rows that it is run on."""

    def __init__(self, inner: MDLM) -> None:
        self.inner, self.sequences, self.rows = inner, 0, 0
        self.mask_id, self.max_length, self.table = inner.mask_id, inner.max_length, inner.table

    def hidden(self, embeddings):
        self.sequences += len(embeddings)
        return self.inner.hidden(embeddings)

    def logits(self, rows):
        self.rows += len(rows)
        return self.inner.logits(rows)


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_batches_of_any_size_give_the_same_samples(model, rule, operator):
    settings = {"num": 6, "steps": 10, "rule": rule, "feedback": soft_mask(operator), "seed": 5, "top_p": 0.95}
    whole = sample(model, batch_size=6, **settings)
    for batch_size in (1, 4):
        again = sample(model, batch_size=batch_size, **settings)
        assert torch.equal(again.tokens, whole.tokens)
        assert torch.equal(again.calls, whole.calls)
    assert not (whole.tokens == model.mask_id).any()
    assert len({tuple(row) for row in whole.tokens.tolist()}) == 6


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_weight_of_zero_gives_the_tokens_of_no_feedback(model, rule, operator):
    settings = {"num": 5, "steps": 12, "rule": rule, "seed": 2}
    fed = sample(model, feedback=soft_mask(operator, fixed=0.0), **settings)
    assert torch.equal(fed.tokens, sample(model, feedback=None, **settings).tokens)


def test_feedback_changes_samples(model):
    plain, fed = (sample(model, num=5, steps=12, feedback=f, seed=2) for f in (None, soft_mask()))
    assert not torch.equal(plain.tokens, fed.tokens)


def test_different_seeds_give_different_samples(model):
    first, second = (sample(model, num=3, steps=8, feedback=None, seed=seed).tokens for seed in (0, 2**63 - 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rule", [*sorted(RULES), RemaskCap(cap=0.5), RemaskLoop(rate=0.5)])
@pytest.mark.parametrize("feedback", [None, "spherical"])
def test_given_tokens_never_change(model, rule, feedback):
    prompt = "the [MASK][MASK]t sat on"
    samples = sample(model, num=8, steps=16, rule=rule, feedback=feedback, prompt=prompt, length=24, seed=1)
    for text in samples.texts:
        assert (text[:4], text[6:14], len(text)) == ("the ", "t sat on", 24)
        assert "[MASK]" not in text


def test_different_prompts_in_one_batch_draw_the_numbers_they_draw_alone(model):
    prompts = ["a [MASK]at", "[MASK] dog ran", "no"]
    together = sample(model, num=3, prompt=prompts, length=20, steps=7, feedback=soft_mask(), seed=4)
    for i, prompt in enumerate(prompts):
        alone = sample(model, num=3, prompt=[prompt] * 3, length=20, steps=7, feedback=soft_mask(), seed=4)
        assert torch.equal(alone.tokens[i], together.tokens[i])


def test_a_prompt_with_holes_has_its_own_length_and_one_without_is_continued(model):
    assert sample(model, prompt="a [MASK]at", steps=2, feedback=None).tokens.shape == (1, 5)
    assert sample(model, prompt="a cat", steps=2, feedback=None).tokens.shape == (1, 24)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_an_all_given_prompt_is_returned_without_a_call(model, rule):
    counting = Counting(model)
    ids = model.tokenizer.encode("all is given")
    samples = sample(counting, num=2, prompt=ids, length=len(ids), steps=5, rule=rule, feedback=soft_mask())
    assert samples.tokens.tolist() == [ids, ids]
    assert samples.calls.tolist() == [0, 0]
    assert counting.sequences == 0


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize(("steps", "length"), [(1, 24), (1, 1), (60, 24), (60, 1), (3, 2)])
def test_any_number_of_steps_and_any_length_end_without_a_mask(model, rule, steps, length):
    samples = sample(model, num=3, steps=steps, length=length, rule=rule, feedback=soft_mask())
    assert samples.tokens.shape == (3, length)
    assert not (samples.tokens == model.mask_id).any()
    assert (samples.calls <= steps + 1).all()


def test_a_prompt_with_holes_has_its_own_length_beside_one_without(model):
    samples = sample(model, num=2, prompt=["a [MASK]at", "a cat"], steps=2, feedback=None)
    assert samples.lengths.tolist() == [5, 24]


def test_prompts_may_be_lists_tensors_or_arrays_of_ids(model):
    ids = [1, model.mask_id, 3]
    samples = [
        sample(model, prompt=kind, steps=2, feedback=None).tokens
        for kind in (ids, torch.tensor(ids), np.array(ids), list(np.array(ids)))
    ]
    assert all(torch.equal(tokens, samples[0]) for tokens in samples)


def test_dropout_is_off_while_sampling_and_the_mode_is_put_back():
    model = small_mdlm(vocab_size=28, model_length=24, dropout=0.5).train()
    first, second = (sample(model, num=2, steps=6, feedback=None).tokens for _ in range(2))
    assert torch.equal(first, second)
    assert all(module.training for module in model.modules())


def test_no_samples_are_no_trouble(model):
    samples = sample(model, num=0, steps=5, feedback=None)
    assert samples.tokens.shape == (0, 24)
    assert samples.texts == []


@pytest.mark.parametrize("feedback", [None, "spherical"])
def test_calls_are_what_the_denoiser_was_asked(model, feedback):
    counting = Counting(model)
    samples = sample(counting, num=4, steps=40, feedback=feedback, seed=3)
    assert int(samples.calls.sum()) == counting.sequences
    if feedback is None:
        # A step that reveals nothing costs nothing, and each position's logits are computed once.
        assert (samples.calls <= 24).all()
        assert counting.rows == 4 * 24
    else:
        in_band = sum(0.2 <= t <= 0.8 for t in torch.linspace(1, 1e-5, 41).tolist())
        assert (samples.calls >= in_band - 8).all()


def test_reused_predictions_cost_fewer_calls(model):
    settings = {"num": 8, "steps": 48, "feedback": soft_mask(), "seed": 3}
    always, reused = (sample(model, reuse=reuse, **settings) for reuse in (False, True))
    assert (reused.calls < always.calls).all()
    # A sequence is passed through the denoiser at most once after each step that changed it.
    trace = sample(model, reuse=True, trace=True, **settings).traces[0]
    assert torch.equal(trace.tokens, reused.tokens)
    for before, step in zip(trace.steps, trace.steps[1:], strict=False):
        unchanged = (before.tokens == step.tokens).all(1)
        assert not (step.called & unchanged).any()
    plain = [sample(model, reuse=reuse, **settings | {"feedback": None}) for reuse in (False, True)]
    assert torch.equal(plain[0].tokens, plain[1].tokens)
    assert torch.equal(plain[0].calls, plain[1].calls)


def test_the_band_is_that_of_the_training_unless_it_is_given(model):
    narrow = SoftMask(confidence=Confidence(fixed=0.5), band=(0.39, 0.61))
    settings = {"num": 3, "steps": 20, "seed": 1, "trace": True}

    def times_with_feedback(**options) -> list[float]:
        steps = sample(model, **settings, **options).traces[0].steps
        return [round(step.time[0].item(), 2) for step in steps if step.weight.any()]

    assert times_with_feedback(feedback=narrow) == [0.6, 0.55, 0.5, 0.45, 0.4]
    assert times_with_feedback(feedback=narrow, band=(0.0, 0.31)) == [0.3, 0.25, 0.2, 0.15, 0.1, 0.05]
    model.feedback = narrow
    try:
        assert times_with_feedback(feedback="linear") == [0.6, 0.55, 0.5, 0.45, 0.4]
    finally:
        model.feedback = None


def test_the_function_and_the_command_have_the_same_settings():
    parameters = inspect.signature(sample).parameters.items()
    function = {name: one.default for name, one in parameters if name not in ("denoiser", "trace", "progress")}
    files = ("checkpoint", "prompts", "out")
    command = {one.name: one.default for one in fields(SampleConfig) if one.name not in files}
    # None means no feedback in Python; on the command line it is what is not given, and `none` means no feedback.
    assert (function.pop("feedback"), command.pop("feedback")) == ("trained", None)
    assert function == command


@pytest.mark.parametrize("trained", [None, SoftMask("none")])
def test_trained_feedback_is_the_default_and_untrained_feedback_warns_once(model, trained):
    model.feedback = trained
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        sample(model, steps=3, feedback="linear")
    assert [str(w.message) for w in seen] == [
        "the model has no feedback of its own, so the default weights are used; `arcmask tune` fits them"
    ]
    model.feedback = soft_mask()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trained, named = (sample(model, num=3, steps=9, feedback=f).tokens for f in ("trained", model.feedback))
            sample(model, steps=3, feedback="linear")
        assert torch.equal(trained, named)
    finally:
        model.feedback = None


def test_a_trace_says_what_happened_and_changes_nothing(model):
    settings = {"num": 2, "steps": 16, "feedback": soft_mask(), "seed": 6}
    plain, traced = sample(model, **settings), sample(model, trace=True, **settings)
    assert torch.equal(plain.tokens, traced.tokens)
    trace = traced.traces[0]
    assert torch.equal(trace.tokens, plain.tokens)
    assert len(trace.steps) == 16
    for step, after in zip(trace.steps, [s.tokens for s in trace.steps[1:]], strict=False):
        masked = step.tokens == model.mask_id
        fed = step.weight > 0
        assert not fed[~masked].any()
        assert fed.any() == (0.2 <= step.time[0] <= 0.8)
        torch.testing.assert_close(step.probs[masked].sum(-1), torch.ones(int(masked.sum()), dtype=torch.float64))
        assert ((after == step.tokens) | masked).all()


def test_a_trace_shows_the_weight_that_its_last_prediction_gives(model):
    feedback = soft_mask()
    trace = sample(model, num=1, steps=16, feedback=feedback, seed=6, trace=True).traces[0]
    for before, step in zip(trace.steps, trace.steps[1:], strict=False):
        if 0.2 <= step.time[0] <= 0.8:
            masked = step.tokens == model.mask_id
            expected = feedback.confidence(before.entropy[masked].float())
            torch.testing.assert_close(step.weight[masked].float(), expected, atol=1e-5, rtol=1e-4)


def test_a_trace_knows_how_much_of_a_prediction_its_candidates_have(model):
    """The first step has no feedback, so one pass over the masks gives its prediction."""
    step = sample(model, num=1, steps=16, feedback=soft_mask(), seed=6, trace=True).traces[0].steps[0]
    with torch.no_grad():
        logits = model.logits(model.hidden(model.table[step.tokens])[0]).double()
    logits[:, model.mask_id] = -torch.inf
    whole = logits.softmax(-1)
    torch.testing.assert_close(step.share[0], whole.topk(3).values.sum(-1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        step.probs[0] * step.share[0, :, None], whole.gather(1, step.ids[0]), atol=1e-5, rtol=1e-5
    )


def test_a_long_trace_is_far_below_a_megabyte():
    model = small_mdlm(vocab_size=28, model_length=128)
    trace = sample(model, num=1, steps=64, feedback=soft_mask(), trace=True).traces[0]
    text = trace.dumps()
    assert len(text) < 600_000
    assert json.loads(text)["tokens"] == trace.tokens[0].tolist()


def test_logits_for_all_positions_never_exist_at_once():
    model = small_mdlm(vocab_size=30_000, model_length=256)
    whole = 4 * 256 * 30_000 * 4
    with torch.profiler.profile(profile_memory=True) as profile:
        sample(model, num=4, steps=4, feedback=soft_mask(), batch_size=4)
    assert max(event.cpu_memory_usage for event in profile.events()) <= 0.7 * whole


def test_streams_depend_on_seed_and_index_alone():
    together, alone = Draws(7, [0, 3, 5]), Draws(7, [3])
    for shape in ((2, 4), (3,)):
        assert torch.equal(together.uniform(*shape)[1], alone.uniform(*shape)[0])
    assert not torch.equal(Draws(7, [3]).uniform(4), Draws(8, [3]).uniform(4))
    assert not torch.equal(Draws(7, [3]).uniform(4), Draws(7, [4]).uniform(4))


def test_progress_counts_every_sample_and_changes_none(model, monkeypatch, capsys):
    monkeypatch.setattr("arcmask.progress._SECONDS_BETWEEN_LINES", 0.0)
    settings = {"num": 5, "length": 8, "steps": 2, "batch_size": 2}
    plain = sample(model, **settings)
    assert capsys.readouterr().err == ""
    shown = sample(model, **settings, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" samples,")[0] for line in lines] == [f"sampling: {done} of 5" for done in (2, 4, 5)]
    assert torch.equal(plain.tokens, shown.tokens)


def test_the_top_level_name_is_the_same_function(model):
    assert torch.equal(arcmask.sample(model, steps=3).tokens, sample(model, steps=3).tokens)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "ancestrall"}, "unknown step rule 'ancestrall'; did you mean 'ancestral'. choose one of: ance"),
        ({"feedback": "spheric"}, "unknown operator 'spheric'"),
        ({"top_p": 0.0}, "top_p is 0.0, but must lie above 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"temperature": -1.0}, "temperature is -1.0, but must be a number above 0"),
        ({"top_k": 0}, "top_k is 0, but must be 1 or more"),
        ({"steps": 0}, "steps is 0, but must lie between 1 and 1,048,576"),
        ({"num": -1}, "num is -1"),
        ({"seed": -1}, "the seed is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"length": 25}, "length is 25, but the model takes at most 24 positions"),
        ({"length": 0}, "length is 0"),
        ({"length": 3, "prompt": "too long"}, "the prompt has 8 tokens, but a sample has 3 positions"),
        ({"prompt": [5, 28]}, "the prompt has the id 28, but ids run from 0 to 27"),
        ({"prompt": ["a", "b"], "num": 3}, "there are 2 prompts for 3 samples"),
        ({"rule": "remask-cap", "precision": "half"}, "unknown precision 'half'"),
        ({"band": (0.8, 0.2)}, r"the band is \(0.8, 0.2\), but must be two rising numbers between 0 and 1"),
        ({"steps": 8, "budget": "1/2"}, "steps is 8 and budget is 1/2; give one of them"),
    ],
)
def test_bad_settings_are_one_sentence(model, settings, message):
    with pytest.raises(ArcmaskError, match=message):
        sample(model, **settings)


def test_a_prompt_in_words_needs_a_tokenizer():
    with pytest.raises(ArcmaskError, match="the model has no tokenizer; give the prompt as ids"):
        sample(small_mdlm(), prompt="hello", feedback=None)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_remasking_rates_out_of_range_are_an_error(share):
    with pytest.raises(ArcmaskError, match=rf"cap of a remasking rule is {share}"):
        RemaskCap(cap=share)


def draw(logits: torch.Tensor, **settings) -> torch.Tensor:
    """Return the share of each token for 10,000 evenly spaced uniform numbers."""
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    rows = torch.zeros(10_000, dtype=torch.long)
    tokens, _ = Filter(**settings).draw(logits[None], uniform, rows=rows, exclude=len(logits) - 1)
    return torch.bincount(tokens, minlength=len(logits)) / 10_000


def test_filters_leave_what_they_should():
    logits = torch.tensor([0.1, 0.5, 0.3, 0.1, 7.0]).log()  # the last one is the mask
    torch.testing.assert_close(draw(logits), torch.tensor([0.1, 0.5, 0.3, 0.1, 0.0]), atol=2e-4, rtol=0)
    torch.testing.assert_close(draw(logits, top_k=2), torch.tensor([0, 0.625, 0.375, 0, 0]), atol=2e-4, rtol=0)
    torch.testing.assert_close(draw(logits, top_p=0.6), torch.tensor([0, 0.625, 0.375, 0, 0]), atol=2e-4, rtol=0)
    crossing = draw(logits, top_p=0.6, drop_crossing=True)
    torch.testing.assert_close(crossing, torch.tensor([0, 1.0, 0, 0, 0]), atol=2e-4, rtol=0)
    cold = torch.tensor([0.01, 0.25, 0.09, 0.01, 0]) / 0.36
    torch.testing.assert_close(draw(logits, temperature=0.5), cold, atol=2e-4, rtol=0)
    assert draw(logits, top_p=1e-9)[1] == 1


def test_a_flat_row_reaches_past_the_first_part_of_a_nucleus():
    shares = draw(torch.zeros(5001), top_p=0.9)
    assert int((shares > 0).sum()) == 4500
