"""The time that is left: each kind of stage is corrected by what its finished stages took."""

from itertools import product

import pytest

from arcmask.experiment import Plan
from arcmask.experiment.clock import Clock
from arcmask.experiment.estimate import find_costs
from arcmask.recipes import find_experiment

KINDS = ("inspection", "training", "sampling", "likelihood", "scoring")
# By how much the truth is slower than the estimate.
WRONG = [
    {"training": 2.0, "scoring": 0.5},
    {"training": 0.5, "sampling": 2.0},
    {"training": 2.0, "sampling": 0.6, "likelihood": 3.0},
    dict.fromkeys(KINDS, 2.0),
    dict.fromkeys(KINDS, 0.4),
    {},
]


def stages(plan: Plan) -> list[tuple[str, float]]:
    """The stages of an experiment in order, with the seconds that are estimated for an A100."""
    costs = find_costs(plan, "A100")
    found = [("inspection", costs.inspection())]
    for seed in plan.seeds:
        for name, arm in plan.arms.items():
            found.append(("training", costs.training(plan.train(name, seed))))
            found += [("sampling", costs.sampling(arm, budget)) for budget in plan.budgets]
        found += [("likelihood", costs.likelihood(arm)) for arm in plan.arms.values()]
        found += [("scoring", costs.scoring()) for _ in product(plan.arms, plan.budgets)]
    return found + [("training", costs.training(plan.train(name, plan.seeds[0]))) for name in plan.ablations]


@pytest.mark.parametrize("factors", WRONG)
def test_from_the_first_tenth_on_it_is_within_a_third(factors, monkeypatch):
    now, planned = [0.0], stages(find_experiment("paper"))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(planned)
    truth = [seconds * factors.get(kind, 1.0) for kind, seconds in planned]
    checked = 0
    for number, seconds in enumerate(truth):
        if now[0] >= 0.1 * sum(truth):
            assert clock.left(number) == pytest.approx(sum(truth[number:]), rel=1 / 3), (number, planned[number])
            checked += 1
        with clock.measuring(number):
            now[0] += seconds
    assert checked > 0.7 * len(truth)
    assert clock.left(len(truth)) == 0


def test_before_anything_is_measured_it_is_the_estimate():
    assert Clock([("training", 300.0), ("scoring", 100.0)]).left(0) == 400


def test_one_kind_does_not_speak_for_another(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock([("training", 100.0), ("scoring", 100.0)] * 4)
    for number, seconds in enumerate((400.0, 25.0) * 2):
        with clock.measuring(number):
            now[0] += seconds
    left = clock.left(4)
    assert left == pytest.approx(2 * 400 + 2 * 25, rel=0.12)
    assert clock.left(6) == pytest.approx(left / 2)


def test_a_resumed_run_knows_the_times_of_the_one_before(tmp_path, monkeypatch):
    now, stages = [0.0], [("training", 10.0), ("scoring", 100.0)] * 4
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(stages, tmp_path / "cache" / "times.json")
    for number in range(2):
        with clock.measuring(number):
            now[0] += 3 * stages[number][1]
    assert Clock(stages, clock.path).left(2) == clock.left(2) == pytest.approx(3 * 330, rel=0.1)
    for content in ("{", "[1]", '{"training": 3}', '{"training": [0, 1]}', '{"training": ["a", "b"]}'):
        clock.path.write_text(content)
        assert Clock(stages, clock.path).left(2) == 330
