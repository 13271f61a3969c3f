"""The gate: a decision per step from (seed, step) alone, its frequency, antithetic times, and masks at rate t."""

import pytest
import torch
from scipy.stats import binomtest, kstest

from arcmask.data import interleaved
from arcmask.errors import ArcmaskError
from arcmask.feedback import Gate


def test_the_frequency_is_the_probability():
    for probability in (0.0, 0.3, 0.5, 1.0):
        gate = Gate(probability=probability)
        opened = sum(gate.draw(5, step, 4, 1).feedback for step in range(4000))
        assert binomtest(opened, 4000, probability).pvalue > 1e-3


def test_a_draw_depends_on_seed_and_step_alone():
    first, again = (Gate().draw(3, 77, 8, 16) for _ in range(2))
    assert torch.equal(first.time, again.time)
    assert torch.equal(first.uniform, again.uniform)
    assert first.feedback == again.feedback
    for other in (Gate().draw(4, 77, 8, 16), Gate().draw(3, 78, 8, 16)):
        assert not torch.equal(first.uniform, other.uniform)


def test_times_are_antithetic_and_uniform():
    times = torch.stack([Gate().draw(0, step, 8, 1).time for step in range(500)])
    parts = ((times - 1e-3) / (1 - 1e-3) * 8).long()
    assert torch.equal(parts, torch.arange(8).expand(500, 8))
    assert kstest(((times.flatten() - 1e-3) / (1 - 1e-3)).numpy(), "uniform").pvalue > 1e-3


def test_shares_of_a_batch_have_equal_parts_of_its_masks():
    masked = Gate().draw(0, 0, 512, 1024).masked
    ranks = [masked[interleaved(rank, 4)] for rank in range(4)]
    assert [part.double().mean().item() for part in ranks] == pytest.approx([0.5] * 4, abs=0.005)
    # In rows that follow each other, the last rank would have seven times as much to do as the first.
    consecutive = [part.double().mean().item() for part in masked.chunk(4)]
    assert consecutive == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=0.01)
    micro_batches = [part[interleaved(number, 8)] for part in ranks for number in range(8)]
    assert [part.double().mean().item() for part in micro_batches] == pytest.approx([0.5] * 32, abs=0.05)
    assert torch.cat(micro_batches).sum() == masked.sum()


def test_masks_have_the_rate_of_their_time():
    draws = [Gate().draw(1, step, 4, 2000) for step in range(50)]
    rates = torch.cat([draw.masked.double().mean(1) for draw in draws])
    times = torch.cat([draw.time for draw in draws])
    assert (rates - times).abs().max() < 5 * (0.25 / 2000) ** 0.5


def test_with_antithetic_times_the_mean_never_leaves_the_default_band():
    gate = Gate(probability=1.0)
    assert all(gate.draw(2, step, batch, 1).feedback for step in range(300) for batch in (2, 3, 8))
    assert not all(gate.draw(2, step, 1, 1).feedback for step in range(300))


def test_by_the_main_text_times_are_drawn_from_the_band_on_feedback_steps_only():
    gate = Gate(reading="draw")
    draws = [gate.draw(6, step, 16, 1) for step in range(200)]
    assert all(((d.time >= 0.2) & (d.time <= 0.8)).all() for d in draws if d.feedback)
    assert any((d.time > 0.95).any() for d in draws if not d.feedback)
    assert [d.feedback for d in draws] == [Gate().draw(6, step, 16, 1).feedback for step in range(200)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"probability": 1.5}, "probability is 1.5, but must lie between 0 and 1"),
        ({"band": (0.8, 0.2)}, r"band is \(0.8, 0.2\)"),
        ({"reading": "mean"}, "unknown reading of the band 'mean'; choose one of: batch-mean, draw"),
        ({"least_time": 0.0}, "least time is 0.0"),
    ],
)
def test_settings_out_of_range_are_an_error(settings, message):
    with pytest.raises(ArcmaskError, match=message):
        Gate(**settings)
