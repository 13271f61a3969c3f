"""The gain curve: equal to direct bounds, one shared draft, and readings that say what the numbers say."""

from dataclasses import replace

import pytest
import torch
from models import small_mdlm

from arcmask.diagnostics import gain_curve
from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS, Confidence, SoftMask
from arcmask.objective import TwoPass, likelihood_bound

WEIGHTS = (0.0, 0.2, 0.6)


@pytest.fixture(scope="module")
def model():
    return small_mdlm().double()


@pytest.fixture(scope="module")
def rows():
    return torch.randint(0, 22, (10, 16), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def curve(model, rows):
    return gain_curve(model, rows, weights=WEIGHTS, seed=3, batch_size=4)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "none"])
def test_differences_are_those_of_direct_bounds(model, rows, curve, name):
    for index, weight in enumerate(WEIGHTS):
        objective = TwoPass(model, SoftMask(name, confidence=Confidence(fixed=weight)))
        plain, fed = (likelihood_bound(objective, rows.split(4), feedback=fed, seed=3).nats for fed in (False, True))
        assert curve.plain == pytest.approx(plain, abs=1e-9)
        assert curve.difference[name][index] == pytest.approx(fed - plain, abs=1e-9)


def test_every_operator_and_weight_costs_one_pass(model, rows, monkeypatch):
    calls = []
    hidden = type(model).hidden
    monkeypatch.setattr(type(model), "hidden", lambda self, x: calls.append(1) or hidden(self, x))
    gain_curve(model, rows, ["linear", "spherical"], WEIGHTS, batch_size=5)
    assert len(calls) == 2 * (1 + 2 * 2)  # two batches: the draft, and two weights above 0 for two operators


def test_weight_zero_changes_nothing_and_norms_are_kept(curve):
    for name, record in OPERATORS.items():
        if name != "none":
            assert (curve.difference[name][0], curve.angle[name][0], curve.norm[name][0]) == (0.0, 0.0, 1.0)
            if record.keeps_norm:
                assert curve.norm[name] == pytest.approx([1.0] * len(WEIGHTS))
            assert curve.angle[name][2] > curve.angle[name][1] > 0


def test_the_intervals_of_time_average_to_the_whole(curve):
    for name, row in curve.difference.items():
        by_time = curve.difference_by_time[name][1]
        assert len(by_time) == len(curve.time_edges) - 1
        assert min(x for x in by_time if x is not None) <= row[1] <= max(x for x in by_time if x is not None)


def test_the_reading_says_whether_feedback_helps(curve):
    better = {name: [0.0, -0.5, 0.1] for name in curve.difference}
    narrow = {name: [0.0, 0.1, 0.1] for name in curve.difference}
    reading = replace(curve, difference=better, half_width=narrow).reading
    assert "helps this model without any training" in reading
    assert "0.5000 ± 0.1000" in reading
    worse = {name: [0.0, 0.2, 0.1] for name in curve.difference}
    assert "no gain from feedback without" in replace(curve, difference=worse, half_width=narrow).reading


def test_rows_of_another_shape_are_refused(model):
    with pytest.raises(ArcmaskError, match=r"rows must have the shape \(N, L\) with two rows or more"):
        gain_curve(model, torch.zeros(1, 16, dtype=torch.long))
