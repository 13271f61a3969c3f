"""`arcmask sample`: each sample is written once, even if the command is killed and restarted or runs twice."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from forks import Outcome
from models import small_mdlm

from arcmask.checkpoint import save
from arcmask.cli import main
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import Confidence, SoftMask
from arcmask.sampling import SampleConfig

LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--", "arcmask")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """Save a model in float64, so that samples of different batches agree bit for bit."""
    model = small_mdlm(vocab_size=28, model_length=32).double()
    model.feedback = SoftMask(confidence=Confidence(fixed=0.3))
    model.tokenizer = open_tokenizer("text8")
    folder = tmp_path_factory.mktemp("model")
    save(model, folder)
    return folder


def command(checkpoint: Path, out: Path | None, *options: str) -> list[str]:
    target = [] if out is None else ["--out", str(out)]
    return ["sample", str(checkpoint), "--steps", "12", *target, *options]


def run(words: list[str]) -> Outcome:
    """Run a command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        try:
            main(words)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


def lines(out: Path) -> dict[int, dict]:
    """Return the records by index, and check that none is repeated."""
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({record["index"] for record in records}) == len(records), "a sample was repeated"
    return {record["index"]: record for record in records}


@pytest.fixture(scope="module")
def unbroken(checkpoint, tmp_path_factory) -> dict[int, dict]:
    out = tmp_path_factory.mktemp("unbroken") / "samples.jsonl"
    result = run(command(checkpoint, out, "--num", "30"))
    assert result.code == 0, result.stderr
    return lines(out)


def test_a_line_has_text_tokens_seed_steps_and_calls(unbroken):
    assert sorted(unbroken) == list(range(30))
    first = unbroken[0]
    assert first["text"] == open_tokenizer("text8").decode(first["tokens"])
    assert (first["seed"], first["steps"], first["length"], first["feedback"]) == (0, 12, 32, "spherical")
    assert 0 < first["calls"] <= 13


def test_killed_and_started_again_it_continues_and_never_repeats(checkpoint, unbroken, forks, tmp_path):
    out = tmp_path / "samples.jsonl"
    words = command(checkpoint, out, "--num", "30", "--batch_size", "1")
    rng = random.Random(0)
    kills = 0
    for _ in range(4):
        process = forks.start(words, tmp_path)
        already = len(out.read_bytes()) if out.exists() else 0
        while process.is_running and (not out.exists() or len(out.read_bytes()) <= already):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.signal(signal.SIGKILL)
        kills += process.wait().code == -signal.SIGKILL
    assert kills >= 2
    with out.open("a") as file:  # what a kill in the middle of a write would leave
        file.write('{"index": 29, "te')
    result = run(words)
    assert result.code == 0, result.stderr
    assert lines(out) == unbroken


def test_two_processes_share_the_work_and_write_the_same(checkpoint, unbroken, forks, tmp_path):
    words = command(checkpoint, tmp_path / "samples.jsonl", "--num", "30", "--batch_size", "3")
    assert [end.code for end in forks.run_ranks(words, tmp_path)] == [0, 0]
    assert lines(tmp_path / "samples.jsonl") == unbroken


@pytest.mark.slow
def test_torchrun_starts_the_processes(checkpoint, unbroken, tmp_path):
    words = command(checkpoint, tmp_path / "samples.jsonl", "--num", "30", "--batch_size", "3")
    subprocess.run([sys.executable, *LAUNCH, *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert lines(tmp_path / "samples.jsonl") == unbroken


def test_two_starts_at_once_write_each_sample_once(checkpoint, unbroken, forks, tmp_path):
    words = command(checkpoint, tmp_path / "samples.jsonl", "--num", "30", "--batch_size", "2")
    both = [forks.start(words, tmp_path) for _ in range(2)]
    assert [process.wait().code for process in both] == [0, 0]
    assert lines(tmp_path / "samples.jsonl") == unbroken


def test_another_model_or_other_feedback_is_refused_and_another_path_to_the_same_is_not(checkpoint, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    out = tmp_path / "samples.jsonl"
    assert run(command(copy, out, "--num", "1")).code == 0
    assert run(command(checkpoint, out, "--num", "2")).code == 0
    settings = json.loads((copy / "feedback.json").read_text())
    (copy / "feedback.json").write_text(json.dumps(settings | {"top_k": 1}))
    assert "holds samples with feedback_settings" in run(command(copy, out, "--num", "3")).stderr
    save(small_mdlm(vocab_size=28, model_length=32, seed=9).double(), copy)
    result = run(command(copy, out, "--num", "3", "--feedback", "spherical"))
    assert result.code == 2


def test_a_band_and_reuse_are_settings_of_the_samples_and_an_older_file_has_the_defaults(checkpoint, tmp_path):
    out = tmp_path / "samples.jsonl"
    assert run(command(checkpoint, out, "--num", "1")).code == 0
    record = json.loads(out.read_text())
    assert (record.pop("band"), record.pop("reuse")) == ([0.2, 0.8], False)
    out.write_text(json.dumps(record) + "\n")  # as earlier versions wrote it
    assert run(command(checkpoint, out, "--num", "2")).code == 0
    refused = run(command(checkpoint, out, "--num", "3", "--band", "0.1", "0.5"))
    assert "holds samples with band [0.2, 0.8], but now band is [0.1, 0.5]" in refused.stderr
    other = tmp_path / "other.jsonl"
    assert run(command(checkpoint, other, "--band", "0.1", "0.5", "--reuse", "true")).code == 0
    assert (json.loads(other.read_text())["band"], json.loads(other.read_text())["reuse"]) == ([0.1, 0.5], True)


def test_bad_input_leaves_nothing_behind(tmp_path):
    result = run(command(tmp_path / "no-model", tmp_path / "new" / "samples.jsonl"))
    assert result.code == 2
    assert not (tmp_path / "new").exists()


def test_with_a_file_it_says_what_it_did_and_what_comes_next(checkpoint, tmp_path):
    out = tmp_path / "my samples.jsonl"
    for num, drawn, kept in ((3, 3, ""), (5, 2, "; 3 were there"), (5, 0, "; 5 were there")):
        summary, following = run(command(checkpoint, out, "--num", str(num))).stdout.splitlines()
        rate = r" \([\d.]+ per second\)" if drawn else ""
        start = re.escape(f"{out}: {drawn} samples of {checkpoint} drawn in ")
        assert re.fullmatch(rf"{start}[\d.]+ s{rate}{kept}", summary), summary
        assert following == f"next: arcmask evaluate '{out}'"


def test_without_a_file_texts_are_printed(checkpoint, unbroken):
    result = run(command(checkpoint, None, "--num", "2"))
    assert result.stdout.splitlines() == [unbroken[0]["text"], unbroken[1]["text"]]


def test_a_file_of_another_run_is_refused_and_left_alone(checkpoint, tmp_path):
    out = tmp_path / "samples.jsonl"
    run(command(checkpoint, out, "--num", "2"))
    before = out.read_bytes()
    result = run(command(checkpoint, out, "--num", "2", "--seed", "1"))
    assert result.code == 2
    assert result.stderr.endswith("holds samples with seed 0, but now seed is 1; give another file\n")
    out.write_bytes(before + b"not a sample\n")
    assert "line 3, is not a sample of arcmask" in run(command(checkpoint, out, "--num", "4")).stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rule", "x"], "arcmask: unknown step rule 'x'; choose one of: "),
        (["--budget", "half"], "arcmask: the budget is 'half', but must be above 0 and at most 100, such as 1/16\n"),
        (["--budget", "1/4"], "arcmask: steps is 12 and budget is 1/4; give one of them\n"),
        (["--out", "/dev/null"], "arcmask: cannot write to /dev/null: it is not a regular file\n"),
        (["--band", "0.2"], "arcmask: the band is (0.2,), but must be two rising numbers between 0 and 1\n"),
        (["--batch_size", "0"], "arcmask: batch_size is 0, but must lie between 1 and 1,048,576\n"),
        (["--precision", "half"], "arcmask: unknown --precision 'half'; choose one of: auto, bfloat16, float32\n"),
    ],
)
def test_bad_settings_are_said_before_the_model_is_opened(tmp_path, options, sentence):
    base = ["sample", str(tmp_path / "no-model")]
    steps = [] if options == ["--budget", "half"] else ["--steps", "12"]
    result = run([*base, *steps, *options])
    assert result.code == 2
    assert result.stderr.startswith(sentence)


def test_a_budget_is_a_share_of_the_length():
    assert SampleConfig(checkpoint="x", budget="1/16").steps_for(1024) == 64
    assert SampleConfig(checkpoint="x", budget="0.5").steps_for(128) == 64
    assert SampleConfig(checkpoint="x", budget="1/16").steps_for(4) == 1
    assert SampleConfig(checkpoint="x").steps_for(1024) == 64
    with pytest.raises(ArcmaskError, match="the budget is '-1'"):
        SampleConfig(checkpoint="x", budget="-1")
