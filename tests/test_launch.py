"""Several processes for one command: how many, how they end, and what SLURM says of them.

Small programs stand in for `arcmask`, which takes seconds to start; a slow test starts the real one.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from forks import Forks

from arcmask import cli, ranks
from arcmask.errors import ArcmaskError, Stopped
from arcmask.launch import launch
from arcmask.run_folder import locked_run, wait_for_file

# torch's launcher leaves the files open that it sends the output of processes to.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
sys.path.remove({folder!r})
del sys.modules["arcmask"]
from arcmask.launch import end_with_launcher, record_failure
rank = int(os.environ["RANK"])
def stop(number, _):
    record_failure("stopped and saved", 75)
    sys.exit(75)
def fail(sentence, code=2, **lost):
    record_failure(sentence, code, **lost)
    sys.exit(code)
signal.signal(signal.SIGTERM, stop)
end_with_launcher()
print("said by", rank, flush=True)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Let the launcher start a program in place of arcmask; it knows `rank`, `fail` and `words`."""

    def write(body: str) -> None:
        package = tmp_path / "stub" / "arcmask"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        text = PROGRAM.format(folder=str(package.parent)) + "words = sys.argv[1:]\n" + body
        (package / "__main__.py").write_text(text)
        paths = [str(package.parent), *filter(None, sys.path)]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    return write


def test_all_processes_run_the_command_and_only_the_first_one_is_heard(program, tmp_path, capfd):
    program("Path(words[0]).joinpath(f'{rank} of {os.environ[\"WORLD_SIZE\"]}').write_text(words[1])")
    before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    assert launch([str(tmp_path), "cost: $5, $$ and ${local_rank}"], 3) == (0, None)
    written = {path.name: path.read_text() for path in tmp_path.glob("* of 3")}
    assert written == dict.fromkeys(("0 of 3", "1 of 3", "2 of 3"), "cost: $5, $$ and ${local_rank}")
    assert capfd.readouterr().out == "said by 0\n"
    assert (signal.getsignal(signal.SIGTERM), dict(os.environ)) == before


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        ("fail('the batch is odd')", 2, "the batch is odd"),
        ("fail('no space') if rank else time.sleep(1) or fail('it has ended', is_lost=True)", 2, "no space"),
        ("fail('no space') if rank == 1 else time.sleep(60)", 2, "no space"),
        (
            "os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(60)",
            137,
            "process 1 was ended by SIGKILL",
        ),
        ("sys.exit(3) if rank == 0 else time.sleep(60)", 3, None),
    ],
)
def test_the_reason_is_one_sentence_whichever_process_has_it(body, code, sentence, program, capfd):
    program(body)
    found, message = launch([], 2)
    assert found == code
    assert message == sentence or (message or "").startswith(sentence)
    assert capfd.readouterr().err == "", "torch's launcher says nothing, and the sentence is printed by the caller"


def test_a_traceback_of_a_later_process_is_shown(program, capfd):
    program("time.sleep(60) if rank == 0 else 1 / 0")
    assert launch([], 2) == (1, None)
    assert "ZeroDivisionError: division by zero" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_processes_and_their_exit_code_comes_back(number, program, tmp_path):
    program("signal.signal(signal.SIGINT, stop); Path(words[0]).joinpath(str(rank)).touch(); time.sleep(60)")
    threading.Thread(target=lambda: interrupt(tmp_path, number)).start()
    assert launch([str(tmp_path)], 2) == (Stopped.EXIT_CODE, "stopped and saved")


def test_a_signal_to_a_command_that_saves_nothing_ends_it_by_that_signal(program, tmp_path):
    program(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); Path(words[0], str(rank)).touch(); time.sleep(60)"
    )
    threading.Thread(target=lambda: interrupt(tmp_path, signal.SIGTERM)).start()
    assert launch([str(tmp_path)], 2) == (143, None)


def interrupt(folder: Path, number: int) -> None:
    """Send this process a signal when both of its processes run."""
    while not all((folder / str(rank)).exists() for rank in range(2)):
        time.sleep(0.02)
    os.kill(os.getpid(), number)


def test_no_process_outlives_a_launcher_that_was_killed(program, tmp_path):
    program("Path(words[0], str(rank)).write_text(str(os.getpid())); time.sleep(60)")
    child = os.fork()
    if child == 0:
        launch([str(tmp_path)], 2)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not all((tmp_path / str(rank)).exists() for rank in range(2)) and time.monotonic() < deadline:
        time.sleep(0.02)
    pids = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def gpus(monkeypatch):
    """Pretend that there are GPUs, and return the numbers of processes that are started."""
    started: list[int] = []

    def pretend(count: int) -> list[int]:
        monkeypatch.setattr(cli, "count_gpus", lambda: count)
        return started

    monkeypatch.setattr(cli, "launch", lambda _, processes: (started.append(processes), (0, None))[1])
    return pretend


TRAIN = ["train", "sotu-tiny-linear", "--run", "none"]


@pytest.mark.parametrize(
    ("words", "expected", "line"),
    [
        (TRAIN, 4, ""),
        ([*TRAIN, "--processes", "2"], 2, ""),
        ([*TRAIN, "--batch_size", "6", "--micro_batch", "2"], 3, "3 of 4 GPUs are used, because the batch of 6 cannot"),
        (["reproduce", "quickstart", "--run", "none"], 4, ""),
        (["sample", "none", "--num", "2", "--out", "x.jsonl"], 2, "2 of 4 GPUs are used, because there are 2 samples"),
        (["evaluate", "samples.jsonl"], 4, ""),
    ],
)
def test_a_command_starts_a_process_per_gpu_that_has_work(words, expected, line, gpus, capsys):
    started = gpus(4)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert (end.value.code, started) == (0, [expected])
    assert capsys.readouterr().err.startswith(line)


def test_texts_that_are_printed_come_from_one_process_and_a_line_says_what_to_type(gpus, capsys):
    started = gpus(4)
    cli.main(["sample", "sotu-tiny", "--num", "1", "--steps", "1", "--length", "4", "--device", "cpu"])
    assert capsys.readouterr().err == "", "a device was chosen"
    with pytest.raises(SystemExit):
        cli.main(["sample", "no-such-folder"])
    assert "1 of 4 GPUs is used, because the texts are printed; give --out FILE to share" in capsys.readouterr().err
    assert started == []


def test_a_dry_run_is_one_process_that_counts_all(gpus, monkeypatch):
    started, seen = gpus(4), []
    monkeypatch.setattr("arcmask.commands.train.dry_run", lambda _: seen.append(ranks.world_size()))
    cli.main([*TRAIN, "--dry-run"])
    cli.main([*TRAIN, "--dry-run", "--processes", "1"])
    assert (started, seen, ranks.world_size()) == ([], [4, 1], 1)


@pytest.mark.parametrize(
    ("words", "count", "environment", "sentence"),
    [
        (["--processes", "0"], 0, {}, "--processes is 0, but must lie between 1 and 1,024"),
        (["--processes", "-2"], 4, {}, "--processes is -2, but must lie between 1 and 1,024"),
        (["--processes", "8"], 4, {}, "--processes is 8, but there are 4 GPUs"),
        (["--processes", "3"], 0, {}, "--processes is 3, but the batch of 32 cannot be shared evenly by 3 ranks"),
        (
            ["--processes", "2"],
            4,
            {"RANK": "0", "WORLD_SIZE": "4"},
            "--processes is 2, but a launcher has started this command with 4 processes; leave it out",
        ),
    ],
)
def test_a_wrong_number_of_processes_is_one_sentence(words, count, environment, sentence, gpus, monkeypatch, capsys):
    started = gpus(count)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        cli.main([*TRAIN, *words])
    assert (end.value.code, started) == (2, [])
    assert capsys.readouterr().err == f"arcmask: {sentence}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sample", "none"], "--processes is 2, but the texts are printed; give --out FILE to share them"),
        (["evaluate", "--checkpoint", "x", "--data", "y"], "--processes is 2, but a likelihood is computed by one"),
    ],
)
def test_processes_without_work_are_refused(words, sentence, capsys):
    with pytest.raises(SystemExit):
        cli.main([*words, "--processes", "2"])
    assert sentence in capsys.readouterr().err


SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_JOB_NODELIST": "gpu[012-013]",
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "2",
}


def test_the_variables_of_srun_are_read(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(SLURM))
    assert ranks.is_launched()
    assert (ranks.rank(), ranks.local_rank(), ranks.world_size()) == (5, 1, 8)
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("gpu012", "25672")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        SLURM | {"SLURM_NTASKS": "1"},
        SLURM | {"SLURM_STEP_NUM_TASKS": "1"},  # srun --pty bash in a larger job
        {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"} | {"ENVIRONMENT": "BATCH"},
    ],
)
def test_a_single_task_and_a_batch_script_are_not_started_by_srun(environment, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(environment))
    assert not ranks.is_launched()
    assert ranks.world_size() == 1


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("n[1-4],m", "n1"),
        ("r[1-2]n[07,09]", "r1n07"),
        ("node-3.x.org,node-4", "node-3.x.org"),
    ],
)
def test_the_first_host_of_a_node_list(nodes, host):
    assert ranks.first_host(nodes) == host


def test_two_tasks_of_srun_share_a_training_run(config, forks: Forks, tmp_path):
    settings = {"steps": "2", "batch_size": "4", "micro_batch": "2", "validate_every": "0", "dropout": "0"}
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    words = ["train", "--data", config.data, "--init", config.init, "--run", str(tmp_path / "run"), *options]
    port = {"MASTER_ADDR": "127.0.0.1", "SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": "2"}
    tasks = [port | {"SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)} for number in range(2)]
    ends = [task.wait() for task in [forks.start(words, tmp_path, environment=task) for task in tasks]]
    assert [end.code for end in ends] == [0, 0], ends
    assert json.loads((tmp_path / "run/checkpoints/step-0000002/trainer.json").read_text())["ranks"] == 2
    assert ends[1].stdout == "", "the first rank alone prints"


def test_a_restarted_job_waits_for_its_own_lock_and_another_job_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    ready, end = threading.Event(), threading.Event()

    def hold() -> None:
        with locked_run(tmp_path):
            ready.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait()
    threading.Timer(0.3, end.set).start()
    with locked_run(tmp_path):
        assert end.is_set()
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
        with (
            pytest.raises(ArcmaskError, match=rf"another process \(PID {os.getpid()}\) holds the run folder"),
            locked_run(tmp_path),
        ):
            pass
    holder.join()


def test_a_folder_that_is_not_shared_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr("arcmask.run_folder._VISIBLE_SECONDS", 0)
    with pytest.raises(ArcmaskError, match=r"is not there after 0 s; all machines must share the folder"):
        wait_for_file(tmp_path / "plan.json")


@pytest.mark.slow
def test_two_real_processes_draw_the_samples_of_one_and_refuse_once(base, tmp_path):
    command = [sys.executable, "-m", "arcmask", "sample", str(base), "--num", "5", "--steps", "3", "--length", "12"]

    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert run("--out", "one.jsonl").returncode == 0
    two = run("--out", "two.jsonl", "--processes", "2")
    assert two.returncode == 0, two.stderr
    one, two = ([json.loads(line) for line in (tmp_path / name).open()] for name in ("one.jsonl", "two.jsonl"))
    assert sorted(one, key=lambda record: record["index"]) == sorted(two, key=lambda record: record["index"])
    refused = run("--out", "two.jsonl", "--processes", "2", "--seed", "3")
    assert refused.returncode == 2
    assert refused.stderr.strip().startswith("arcmask: two.jsonl holds samples with seed 0")
    assert len(refused.stderr.strip().splitlines()) == 1
