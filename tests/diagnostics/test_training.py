"""Curves and angles over training, and where a run's files are found."""

import json
import math

import pytest

from arcmask.diagnostics import angles_over_training
from arcmask.diagnostics.curves import block_means, block_size, mean_curve
from arcmask.diagnostics.inspection import find_data
from arcmask.errors import ArcmaskError
from arcmask.run_folder import CONFIG, find_run, read_metrics, read_settings, read_yaml


def line(step: int, degrees: float, weight: float = 0.1) -> dict:
    return {
        "step": step,
        "angle": math.radians(degrees - 1),
        "euclidean_angle": math.radians(degrees),
        "weight": weight,
    }


def test_steps_with_feedback_are_read_in_degrees():
    found = angles_over_training([line(1, 73), {"step": 2, "loss": 1.0}, line(3, 75, 0.2)])
    assert (found.steps, found.steps_with_feedback) == ([1, 3], 2)
    assert found.euclidean == pytest.approx([73, 75])
    assert found.frechet == pytest.approx([72, 74])
    assert found.weight == [0.1, 0.2]


def test_many_steps_are_averaged_over_stretches_and_a_planted_drift_is_found():
    found = angles_over_training([line(step, 70 + step / 1000) for step in range(1, 1001)])
    assert len(found.steps) <= 400
    assert found.steps[0] == 2  # of steps 1, 2, 3
    assert found.euclidean[0] == pytest.approx(70.002)
    assert found.euclidean_first == pytest.approx(70 + 50.5 / 1000)
    assert found.euclidean_last == pytest.approx(70 + 950.5 / 1000)
    assert "from 70.1 to 71.0 degrees" in found.reading


def test_metrics_without_feedback_are_an_error():
    with pytest.raises(ArcmaskError, match="no angles: none of its steps used feedback"):
        angles_over_training([{"step": 1, "loss": 1.0}])


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line(1, 73)) + "\n" + '{"step": 2, "an')
    assert [at["step"] for at in read_metrics(tmp_path)] == [1]
    (tmp_path / "metrics.jsonl").write_text("no JSON\n")
    with pytest.raises(ArcmaskError, match=r"metrics.jsonl, line 1, is not a record with a step"):
        read_metrics(tmp_path)
    with pytest.raises(ArcmaskError, match=r"has no metrics\.jsonl"):
        read_metrics(tmp_path / "nowhere")


def test_a_run_is_found_from_itself_and_from_its_checkpoints(tmp_path):
    step = tmp_path / "run" / "checkpoints" / "step-0000001"
    step.mkdir(parents=True)
    assert find_run(str(tmp_path / "run")) is None  # a folder of checkpoints that no run wrote
    (tmp_path / "run" / "config.yaml").touch()
    assert find_run(str(tmp_path / "run")) == find_run(str(step)) == (tmp_path / "run").resolve()
    assert find_run(str(tmp_path)) is None


def test_the_data_of_a_run_is_looked_for_here_and_above_the_run(tmp_path, monkeypatch):
    run = tmp_path / "work" / "runs" / "a"
    run.mkdir(parents=True)
    (tmp_path / "work" / "data").mkdir()
    assert find_data(run, {"data": "data"}) is None  # a folder, but nothing prepared
    (tmp_path / "work" / "data" / "index.json").touch()
    assert find_data(run, {"data": "data"}) == tmp_path / "work" / "data"
    assert find_data(run, {"data": "elsewhere"}) is None
    assert find_data(run, {}) is None
    (tmp_path / "here" / "data").mkdir(parents=True)
    (tmp_path / "here" / "data" / "index.json").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert find_data(run, {"data": "data"}).resolve() == tmp_path / "here" / "data"


def test_settings_that_are_none_are_one_sentence(tmp_path):
    with pytest.raises(ArcmaskError, match=r"config.yaml cannot be read: No such file"):
        read_settings(tmp_path / CONFIG, read_yaml)
    for content, sentence in (("- 1", "does not hold settings by name"), ("a: [", "is not YAML that can be read")):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(ArcmaskError, match=sentence):
            read_settings(tmp_path / CONFIG, read_yaml)


def test_a_block_is_averaged_at_its_last_step_and_an_unfinished_one_is_left_out():
    records = [{"step": step, "nll": float(step)} for step in range(1, 8)] + [{"step": 8, "nll": None}]
    assert block_means(records, "nll", 3) == {3: 2.0, 6: 5.0}
    assert block_means(records, "weight", 3) == {}
    assert block_means([], "nll", 3) == {}


@pytest.mark.parametrize(("steps", "size"), [(1, 1), (30, 3), (60, 5), (300, 5), (301, 6), (7000, 117)])
def test_a_curve_has_at_most_sixty_blocks(steps, size):
    assert block_size(steps) == size


def test_a_mean_curve_has_the_steps_that_all_curves_have():
    assert mean_curve([{5: 1.0, 10: 2.0, 15: 9.0}, {5: 3.0, 10: 4.0}]) == {5: 2.0, 10: 3.0}
