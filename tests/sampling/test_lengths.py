"""Samples of different lengths in one batch, and samples that end at end-of-text."""

import json

import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.rows import PaddedRows
from arcmask.sampling import RULES
from arcmask.sampling.draws import Draws
from arcmask.sampling.generate import draw_batch, generate, make_sampler
from arcmask.sampling.prompts import start_tokens
from arcmask.settings.sample import SampleConfig

LENGTHS = [5, 11, 8, 11]
FEEDBACK = {"none": None, "fed": SoftMask(confidence=Confidence(fixed=0.4))}


@pytest.fixture(scope="module")
def denoiser():
    model = small_mdlm(vocab_size=28).double()
    model.tokenizer = open_tokenizer("text8")
    return model


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("feedback", sorted(FEEDBACK))
def test_samples_of_a_padded_batch_are_those_of_the_rows_alone(denoiser, rule, feedback):
    # Among masks alone all positions are alike, and rounding decides which is the most certain: hence a prompt.
    settings = {"steps": 6, "rule": rule, "feedback": FEEDBACK[feedback], "seed": 3, "prompt": "c"}
    settings["precision"] = "float32"  # that is, the model's own float64
    together = arcmask.sample(denoiser, num=4, length=LENGTHS, batch_size=4, **settings)
    assert together.tokens.shape == (4, 11)
    assert together.lengths.tolist() == LENGTHS
    for number, length in enumerate(LENGTHS):
        # The last of `number + 1` samples: a sample depends on its number, not on the others.
        alone = arcmask.sample(denoiser, num=number + 1, length=length, batch_size=1, **settings)
        assert together.tolist()[number] == alone.tolist()[number]
        assert together.texts[number] == alone.texts[number]
        assert together.calls[number] == alone.calls[number]
    again = arcmask.sample(denoiser, num=4, length=LENGTHS, batch_size=3, **settings)
    assert again.tolist() == together.tolist()


@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_padding_samples_are_the_same(denoiser, rule):
    config = SampleConfig(checkpoint="", num=3, steps=5, rule=rule, seed=3, batch_size=3, top_p=0.9)
    starts = start_tokens(denoiser, "c", 9, 3)
    assert isinstance(starts, torch.Tensor)
    ours, theirs = (
        draw_batch(make_sampler(denoiser, config, same, FEEDBACK["fed"]), same, range(3), config, trace=True)
        for same in (starts, PaddedRows.of(starts.tolist()))
    )
    assert ours.texts == theirs.texts
    assert torch.equal(ours.tokens, theirs.tokens)
    assert torch.equal(ours.calls, theirs.calls)
    assert [trace.to_json() for trace in ours.traces] == [trace.to_json() for trace in theirs.traces]


def test_prompts_with_holes_may_have_different_lengths(denoiser):
    prompts = ["the [MASK][MASK][MASK] sat", "a [MASK]", "the cat sat on"]
    samples = arcmask.sample(denoiser, num=3, prompt=prompts, length=[11, 3, 16], steps=4)
    assert samples.lengths.tolist() == [11, 3, 16]
    assert samples.texts[0].startswith("the ")
    assert samples.texts[0].endswith(" sat")
    assert samples.texts[2].startswith("the cat sat on")
    holes = arcmask.sample(denoiser, num=2, prompt=prompts[:2], steps=4)  # their own lengths
    assert holes.lengths.tolist() == [11, 3]
    assert len(holes.texts[1]) == 3


def test_padding_in_a_start_is_no_hole(denoiser):
    starts = start_tokens(denoiser, None, [2, 4], 2)
    assert isinstance(starts, PaddedRows)
    assert starts.tokens.tolist() == [[27, 27, 0, 0], [27, 27, 27, 27]]
    assert isinstance(start_tokens(denoiser, None, [4, 4], 2), torch.Tensor)


def test_draws_of_a_length_are_those_of_the_sample_alone():
    together, first, second = Draws(7, [0, 3], [4, 2]), Draws(7, [0]), Draws(7, [3])
    for _ in range(2):
        numbers = together.uniform(3, 4)
        assert torch.equal(numbers[0], first.uniform(3, 4)[0])
        assert torch.equal(numbers[1, :, :2], second.uniform(3, 2)[0])
        assert bool((numbers[1, :, 2:] == 1).all())


def test_bad_lengths_are_an_error(denoiser):
    with pytest.raises(ArcmaskError, match="there are 2 lengths for 3 samples"):
        arcmask.sample(denoiser, num=3, length=[4, 5])
    with pytest.raises(ArcmaskError, match="the length is 0, but must be 1 or more"):
        arcmask.sample(denoiser, num=2, length=[4, 0])
    with pytest.raises(ArcmaskError, match="the length is 99, but the model takes at most 16"):
        arcmask.sample(denoiser, num=2, length=[4, 99])
    with pytest.raises(ArcmaskError, match="stop_at_end is set, but the model has no tokenizer with an end-of-text"):
        arcmask.sample(denoiser, length=4, stop_at_end=True)


def test_a_budget_needs_one_length(denoiser, tmp_path):
    """Otherwise the longest of the samples would decide how many steps the others take."""
    message = "budget is 1/2, a share of the length, but the samples have different lengths; give steps"
    with pytest.raises(ArcmaskError, match=message):
        arcmask.sample(denoiser, num=2, length=[4, 8], budget="1/2")
    (tmp_path / "prompts.txt").write_text("a [MASK]\nthe [MASK][MASK]\n")
    config = SampleConfig(checkpoint="", num=2, prompts=str(tmp_path / "prompts.txt"), budget="1/2")
    with pytest.raises(ArcmaskError, match=message):
        next(generate(config, lambda _: denoiser))
    same = arcmask.sample(denoiser, num=2, length=[8, 8], budget="1/2")
    assert same.tolist() == arcmask.sample(denoiser, num=2, length=8, steps=4).tolist()


@pytest.fixture(scope="module")
def ending(tmp_path_factory):
    """A model that often draws end-of-text."""
    tokenizer = arcmask.data.train_bpe(["the cat sat on the mat"] * 3, 262)
    model = small_mdlm(vocab_size=262)
    with torch.no_grad():
        model.linear_head.bias[tokenizer.end_id] += 6
    model.tokenizer = tokenizer
    folder = tmp_path_factory.mktemp("ending") / "model"
    model.save(folder)
    return folder


def test_a_sample_can_end_at_end_of_text(ending):
    denoiser = arcmask.load(ending)
    end = denoiser.tokenizer.end_id
    settings = {"num": 6, "length": 12, "steps": 5, "prompt": [end, 5], "precision": "float32"}
    whole = arcmask.sample(denoiser, **settings)
    cut = arcmask.sample(denoiser, stop_at_end=True, **settings)
    expected = [row[: row.index(end, 2)] if end in row[2:] else row for row in whole.tolist()]  # not in the prompt
    assert cut.tolist() == expected
    assert len({len(row) for row in expected}) > 1
    assert cut.lengths.tolist() == [len(row) for row in expected]
    assert cut.texts == [denoiser.tokenizer.decode(row) for row in expected]
    assert whole.lengths.tolist() == [12] * 6
    behind = torch.arange(12) >= cut.lengths.unsqueeze(1)
    assert bool((cut.tokens[behind] == denoiser.tokenizer.pad_id).all())


def test_the_command_writes_samples_without_what_lies_behind_their_end(ending, tmp_path):
    from arcmask.cli import main

    words = ["sample", str(ending), "--num", "4", "--length", "12", "--steps", "5", "--out", str(tmp_path / "s.jsonl")]
    main([*words, "--stop_at_end", "true"])
    records = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert any(len(record["tokens"]) < 12 for record in records)
    assert all(record["stop_at_end"] for record in records)
    assert all("<|endoftext|>" not in record["text"] for record in records)


class Plain:
    """A denoiser of one's own that knows nothing of padding."""

    mask_id, max_length = 4, None
    table = torch.eye(5)

    def hidden(self, embeddings):
        return embeddings

    def logits(self, hidden_rows):
        return hidden_rows @ torch.zeros(5, 5)


def test_a_plain_denoiser_takes_one_length_and_refuses_several():
    assert arcmask.sample(Plain(), num=2, length=[6, 6], steps=2).lengths.tolist() == [6, 6]
    with pytest.raises(ArcmaskError, match=r"the rows are padded, but hidden\(\) of the denoiser Plain takes no"):
        arcmask.sample(Plain(), num=2, length=[6, 3], steps=2)
