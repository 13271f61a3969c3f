"""Angles over training, and where a run's files are found."""

import json
import math

import pytest

from arcmask.diagnostics import angles_over_training, read_metrics
from arcmask.diagnostics.training import find_data, find_run, read_settings
from arcmask.errors import ArcmaskError


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
    with pytest.raises(ArcmaskError, match="has a line that is not JSON"):
        read_metrics(tmp_path)
    with pytest.raises(ArcmaskError, match="has no metrics to read"):
        read_metrics(tmp_path / "nowhere")


def test_a_run_is_found_from_itself_and_from_its_checkpoints(tmp_path):
    step = tmp_path / "run" / "checkpoints" / "step-0000001"
    step.mkdir(parents=True)
    assert find_run(str(tmp_path / "run")) == find_run(str(step)) == (tmp_path / "run").resolve()
    assert find_run(str(tmp_path)) is None


def test_the_data_of_a_run_is_looked_for_here_and_above_the_run(tmp_path, monkeypatch):
    run = tmp_path / "work" / "runs" / "a"
    run.mkdir(parents=True)
    (tmp_path / "work" / "data").mkdir()
    assert find_data(run, {"data": "data"}) == tmp_path / "work" / "data"
    assert find_data(run, {"data": "elsewhere"}) is None
    assert find_data(run, {}) is None
    (tmp_path / "here" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert find_data(run, {"data": "data"}).resolve() == tmp_path / "here" / "data"


def test_settings_that_are_none_are_one_sentence(tmp_path):
    with pytest.raises(ArcmaskError, match=r"is not a run: it has no config.yaml that can be read \(No such file"):
        read_settings(tmp_path)
    for content in ("- 1", "a: ["):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(ArcmaskError, match="does not hold the settings of a run"):
            read_settings(tmp_path)
