"""Files appear whole or not at all: on a full disk, under a limit, after a kill; and what is there is kept."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from arcmask.checkpoint import convert, load
from arcmask.commands.evaluate import run as evaluate
from arcmask.errors import ArcmaskError
from arcmask.evaluation import EvaluateConfig
from arcmask.experiment import Changes, reproduce
from arcmask.files import disk_error, removed_if_empty, sampled_hash, writable, write_whole, written_whole
from arcmask.recipes import find_experiment
from arcmask.run_folder import read_metrics
from arcmask.training import train


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse every write beyond `size` bytes of a file, as a disk does that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small disk of its own of 64 kB; `remount` resizes it or makes it read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def test_a_write_that_fails_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "scores.json"
    write_whole(path, b"old")
    with largest_file(1000), pytest.raises(ArcmaskError, match=r"scores\.json could not be written: File too large"):
        write_whole(path, bytes(2000))
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]
    assert path.read_bytes() == b"old"
    with pytest.raises(ArcmaskError, match="could not be written: No such file"):
        write_whole(tmp_path / "vanished" / "scores.json", b"new")


def test_a_full_and_a_read_only_disk_are_named(disk):
    write_whole(disk / "a", b"old")
    with pytest.raises(ArcmaskError, match=r"a could not be written: the disk is full; free some space"):
        write_whole(disk / "a", bytes(100_000))
    with (
        pytest.raises(ArcmaskError, match="new could not be written: the disk is full"),
        written_whole(disk / "new") as x,
    ):
        (x / "b").write_bytes(bytes(100_000))
    remount(disk, "ro")
    with pytest.raises(ArcmaskError, match="could not be written: Read-only file system"):
        write_whole(disk / "a", b"new")
    assert [(file.name, file.read_bytes()) for file in disk.iterdir()] == [("a", b"old")]


WRITER = """
import sys, time
from pathlib import Path
from arcmask.files import written_whole
with written_whole(Path(sys.argv[1])) as scratch:
    (scratch / sys.argv[2]).write_text("whole")
    print("written", flush=True)
    sys.stdin.readline()
"""


def writer(folder: Path, name: str) -> subprocess.Popen[str]:
    """Start a process that has written a file, and moves it into its place when it is told to."""
    command = [sys.executable, "-c", WRITER, str(folder), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


@pytest.mark.parametrize("is_new", [True, False])
def test_what_a_killed_process_left_is_removed_and_a_living_one_is_left_alone(tmp_path, is_new):
    folder = tmp_path / "folder"
    if not is_new:
        folder.mkdir()
        (folder / "mine").write_text("old")
    with writer(folder, "killed") as killed, writer(folder, "living") as living:
        killed.kill()
        killed.wait()
        beside = tmp_path if is_new else folder
        (beside / ".writing-older").mkdir()  # killed before it took its lock
        assert len(list(beside.glob(".writing-*"))) == 3
        with written_whole(folder) as scratch:
            (scratch / "mine").write_text("whole")
        assert len(list(beside.glob(".writing-*"))) == 1
        living.communicate("go on\n", timeout=60)
        assert living.returncode == 0
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"mine": "whole", "living": "whole"}
    assert list(tmp_path.iterdir()) == [folder]


def test_new_folders_to_which_nothing_was_written_are_removed(tmp_path):
    (tmp_path / "there").mkdir()
    with removed_if_empty(tmp_path / "there" / "new" / "deep"):
        (tmp_path / "there" / "new" / "deep").mkdir(parents=True)
    assert not list((tmp_path / "there").iterdir())
    with pytest.raises(ZeroDivisionError), written_whole(tmp_path / "new" / "deep") as scratch:
        (scratch / "file").write_text(str(1 / 0))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("size", [1, 5000, 65536, 1 << 22])
def test_a_sampled_hash_sees_the_ends_and_all_of_a_small_file(tmp_path, size):
    path, content = tmp_path / "file", bytearray(os.urandom(size))
    path.write_bytes(content)
    before = sampled_hash(path)
    places = {0, size - 1} | (set(range(0, size, 997)) if size <= 65536 else set())
    for place in places:
        content[place] ^= 1
        path.write_bytes(content)
        assert sampled_hash(path) != before, place
        content[place] ^= 1
    path.write_bytes(content)
    assert sampled_hash(path) == before


@pytest.mark.parametrize("name", ["folder", "file.ckpt"])
def test_convert_on_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, name):
    target = tmp_path / "new" / name
    with largest_file(100_000), pytest.raises(ArcmaskError, match="could not be written: File too large"):
        convert("sotu-tiny", str(target))
    assert not list(tmp_path.iterdir())
    convert("sotu-tiny", str(target))
    assert load(target).table.shape == (28, 192)
    with pytest.raises(ArcmaskError, match="is not a folder"):
        convert("no such model", str(tmp_path / "new" / name / "config.json" / "x"))


def test_training_on_a_full_disk_is_a_sentence_and_resumes(config, tmp_path):
    run, config = tmp_path / "run", replace(config, save_every=100, validate_every=0)
    with largest_file(1500), pytest.raises(ArcmaskError, match=r"metrics\.jsonl could not be written: File too large"):
        train(config, run)
    assert read_metrics(run)
    train(config, run)
    assert [record["step"] for record in read_metrics(run)] == list(range(1, 13))


def test_evaluate_keeps_the_old_scores_if_the_new_ones_cannot_be_written(tmp_path):
    (tmp_path / "samples.txt").write_text("a few words\nand a few more\n")
    settings = {"evaluator": "none", "tokenizer": "text8", "out": str(tmp_path / "scores.json")}
    (tmp_path / "scores.json").write_text("old")
    with largest_file(500), pytest.raises(ArcmaskError, match=r"scores\.json could not be written: File too large"):
        evaluate(EvaluateConfig(samples=(str(tmp_path / "samples.txt"),), **settings, overwrite=True))
    assert (tmp_path / "scores.json").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_evaluate_checks_that_it_can_write_before_it_opens_anything(disk):
    remount(disk, "ro")
    with pytest.raises(ArcmaskError, match=r"cannot write to .*scores\.json: .*disk does not allow it"):
        evaluate(EvaluateConfig(samples=("no such file",), out=str(disk / "scores.json")))


def test_a_file_is_refused_if_its_folder_or_its_name_does_not_allow_it(tmp_path, monkeypatch):
    (tmp_path / "scores.json").write_text("old")
    assert writable(tmp_path / "scores.json") == tmp_path / "scores.json"
    with pytest.raises(ArcmaskError, match="its name is too long"):
        writable(tmp_path / ("a" * 250))
    # Root may write everywhere, so the system's answer is replaced: the file allows it, its folder does not.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    with pytest.raises(ArcmaskError, match=r"cannot write to .*scores\.json: .* does not allow it"):
        writable(tmp_path / "scores.json")


TERMINATED = """
import sys, time
from pathlib import Path
from arcmask import cli
from arcmask.files import file_written_whole

def wait(words):
    with file_written_whole(Path(sys.argv[1])) as beside:
        beside.write_text("half")
        print("writing", flush=True)
        time.sleep(60)

cli._parse_and_run = wait
cli.main([])
"""


def test_a_terminated_command_leaves_no_unfinished_file(tmp_path):
    command = [sys.executable, "-c", TERMINATED, str(tmp_path / "scores.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        assert [path.name for path in tmp_path.iterdir()] == ["scores.json.tmp"]
        process.terminate()
        assert process.wait(timeout=60) == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("blank_figures")
def test_an_experiment_on_a_full_disk_is_a_sentence_and_resumes(base, corpus, disk):
    changes = {"arms": ["none"], "seeds": [1], "budgets": [2], "samples": 3, "steps": 4, "batch_size": 4, "length": 16}
    plan = Changes(**changes, base=str(base), data=corpus, evaluator="none").apply(find_experiment("quickstart"))
    refused = []
    for size in ("4k", "64k", "256k", "800k", "1500k", "2500k", "20m"):
        remount(disk, f"size={size}")
        try:
            reproduce(plan, disk / "run")
        except ArcmaskError as error:
            refused.append(str(error))
    assert len(refused) >= 3
    assert all("the disk is full" in error or "free, but its checkpoints need" in error for error in refused), refused
    assert {path.name for path in (disk / "run").rglob("*.json*")} >= {"plan.json", "likelihood.json", "scores.json"}
    assert not [path for path in disk.rglob("*") if path.name.startswith(".writing") or path.suffix == ".tmp"]


def test_a_full_disk_is_known_by_every_form_of_the_error():
    """safetensors writes the system's number in one of two ways, by its version."""
    for form in (
        "I/O error: no room (os error {})",
        "while serializing: IoError(Os {{ code: {}, kind: Other }})",
    ):
        full, large = (disk_error(ValueError(form.format(code))) for code in (errno.ENOSPC, errno.EFBIG))
        assert full == "the disk is full; free some space and run the same command again"
        assert large == "File too large"
    assert disk_error(ValueError("os error, code 28")) is None
