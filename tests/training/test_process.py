"""Training as a process: killed, asked to stop, or shared by two ranks, it ends with the weights of an unbroken run."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml
from forks import Fork, Forks

from arcmask.errors import Stopped
from arcmask.training import TrainConfig

UNTIMED = ("tokens_per_second", "memory_gb")


def command(config: TrainConfig, run: Path) -> list[str]:
    settings = run.parent / f"{run.name}.yaml"
    settings.write_text(yaml.safe_dump(asdict(config) | {"band": list(config.band)}))
    return ["train", "sotu-tiny-spherical", "--config", str(settings), "--run", str(run)]


def finish(forks: Forks, config: TrainConfig, run: Path, ranks: int = 1) -> None:
    words = command(config, run)
    ends = [forks.run(words, run.parent)] if ranks == 1 else forks.run_ranks(words, run.parent, ranks)
    assert [end.code for end in ends] == [0] * ranks, ends[0].stderr


def outcome(run: Path, step: int) -> tuple[dict, dict, list[dict]]:
    """All that a run leaves: weights, averages and moments, counts, and metrics but for timing."""
    folder = run / "checkpoints" / f"step-{step:07d}"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    records = [{key: value for key, value in line.items() if key not in UNTIMED} for line in lines]
    tensors = safetensors.torch.load_file(folder / "trainer.safetensors")
    return tensors, json.loads((folder / "trainer.json").read_text()), records


def assert_same(found, expected) -> None:
    assert found[1:] == expected[1:]
    assert found[0].keys() == expected[0].keys()
    for name, tensor in expected[0].items():
        assert torch.equal(found[0][name], tensor), name


@pytest.fixture(scope="module")
def long(config) -> TrainConfig:
    return replace(config, steps=40, save_every=2, validate_every=10)


@pytest.fixture(scope="module")
def unbroken(long, forks, tmp_path_factory):
    run = tmp_path_factory.mktemp("unbroken") / "run"
    finish(forks, long, run)
    return outcome(run, 40)


def wait_for_progress(process: Fork, run: Path, before: int) -> None:
    metrics = run / "metrics.jsonl"
    while process.is_running and (not metrics.exists() or len(metrics.read_bytes()) <= before):
        time.sleep(0.005)


def kill_and_resume(forks: Forks, config: TrainConfig, run: Path, kills: int, number: int) -> list[int]:
    """Send the run a signal so often, a random moment after it has got on; then let it finish. Returns the codes."""
    rng = random.Random(kills)
    codes, had_checkpoint = [], False
    for _ in range(kills):
        before = len((run / "metrics.jsonl").read_bytes()) if (run / "metrics.jsonl").exists() else 0
        process = forks.start(command(config, run), run.parent)
        wait_for_progress(process, run, before)
        time.sleep(rng.uniform(0.05, 0.2))
        process.signal(number)
        codes.append(process.wait().code)
        complete = [path for path in (run / "checkpoints").glob("step-*") if (path / "complete").is_file()]
        assert complete or not had_checkpoint, "a checkpoint was lost"
        had_checkpoint = bool(complete)
    assert had_checkpoint, "there was nothing to resume from"
    finish(forks, config, run)
    return codes


def test_killed_three_times_it_ends_as_if_it_had_not_been(long, unbroken, forks, tmp_path):
    codes = kill_and_resume(forks, long, tmp_path / "killed", 3, signal.SIGKILL)
    assert -signal.SIGKILL in codes
    assert_same(outcome(tmp_path / "killed", 40), unbroken)


def test_asked_to_stop_it_saves_and_says_so_by_its_exit_code(long, unbroken, forks, tmp_path):
    codes = kill_and_resume(forks, long, tmp_path / "stopped", 1, signal.SIGTERM)
    assert codes == [Stopped.EXIT_CODE]
    assert_same(outcome(tmp_path / "stopped", 40), unbroken)


LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "arcmask")


def finish_under_torchrun(config: TrainConfig, run: Path) -> None:
    """Start the ranks as the pages say, in new processes, which need seconds."""
    words = [sys.executable, *LAUNCH, *command(config, run)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("is_launched", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_ranks_reach_the_weights_of_one(is_launched, config, forks, tmp_path):
    config = replace(config, centre="auto", steepness="auto")  # which both calibrate alike
    config = replace(config, steps=20, dropout=0.0, save_every=20, validate_every=10)
    finish(forks, config, tmp_path / "one")
    if is_launched:
        finish_under_torchrun(config, tmp_path / "two")
    else:
        finish(forks, config, tmp_path / "two", ranks=2)
    one, two = outcome(tmp_path / "one", 20), outcome(tmp_path / "two", 20)
    assert (tmp_path / "one" / "config.yaml").read_text() == (tmp_path / "two" / "config.yaml").read_text()
    gates = [record["feedback"] for record in one[2]]
    assert gates == [record["feedback"] for record in two[2]]
    assert {True, False} == set(gates)
    for name, tensor in one[0].items():
        torch.testing.assert_close(two[0][name], tensor, rtol=0, atol=1e-10, msg=name)
    for first, second in zip(one[2], two[2], strict=True):
        assert second["loss"] == pytest.approx(first["loss"], rel=1e-9)
        if "validation_nll_feedback" in first:
            assert second["validation_nll_feedback"] == pytest.approx(first["validation_nll_feedback"], rel=1e-9)


def test_without_dropout_two_ranks_may_continue_what_one_began(config, forks, tmp_path):
    config = replace(config, steps=12, dropout=0.0, save_every=6, validate_every=0)
    finish(forks, config, tmp_path / "one")
    finish(forks, replace(config, steps=6), tmp_path / "both")
    finish(forks, config, tmp_path / "both", ranks=2)
    one, both = outcome(tmp_path / "one", 12), outcome(tmp_path / "both", 12)
    assert both[1] == one[1] | {"ranks": 2}
    for name, tensor in one[0].items():
        torch.testing.assert_close(both[0][name], tensor, rtol=0, atol=1e-10, msg=name)


def test_every_page_shows_the_form_of_torchrun_that_takes_every_option():
    """Without `--`, torchrun reads `--run` as one of its own options."""
    shown = [
        shlex.split(line, comments=True)
        for page in (Path(__file__).parents[2] / "docs").glob("*.md")
        for line in page.read_text().splitlines()
        if line.startswith("torchrun")
    ]
    assert ["torchrun", "--nproc-per-node", "2", *LAUNCH[5:]] in [words[:6] for words in shown]
    assert {tuple(words[words.index("arcmask") - 2 :][:3]) for words in shown} == {LAUNCH[5:]}
