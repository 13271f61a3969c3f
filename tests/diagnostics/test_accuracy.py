"""How often a guess is right, where that is known beforehand."""

import pytest
import torch
from planted import Constant

from arcmask.diagnostics import predict, top_accuracy

# Half of all tokens are 0, three tenths 1, two tenths 2; the model says 1, then 2, then 0.
ROWS = torch.tensor([0, 1, 2, 0, 1, 0, 2, 0, 1, 0]).repeat(40, 30)
DENOISER = Constant(torch.eye(5), torch.tensor([0.0, 2.0, 1.0, -1.0, 9.0]))


def test_shares_are_those_of_the_tokens_that_are_guessed():
    some = predict(DENOISER, ROWS, [0.3, 1.0], top_k=2)
    found = top_accuracy(some)
    assert (found.times, found.top_k, found.positions[1]) == ([0.3, 1.0], 2, ROWS.numel())
    assert found.top[1] == pytest.approx(0.3)
    assert found.among[1] == pytest.approx(0.5)
    assert found.frequent[1] == pytest.approx(0.5)
    assert found.frequent_id == [0, 0]
    masked = some[0].targets
    assert found.top[0] == pytest.approx(float((masked == 1).double().mean()))
    assert found.frequent[0] == pytest.approx(float((masked == 0).double().mean()))
    assert found.standard_error[1] == pytest.approx((0.3 * 0.7 / ROWS.numel()) ** 0.5)


def test_the_reading_is_of_the_time_nearest_to_a_half():
    found = top_accuracy(predict(DENOISER, ROWS, [0.1, 0.6, 0.9], top_k=2))
    assert f"At t = 0.6 the first candidate is right at {100 * found.top[1]:.1f} %" in found.reading
