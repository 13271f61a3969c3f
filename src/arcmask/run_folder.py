"""The folder of a run: the names of its files, reading, writing, the refusal of other settings, and the lock.

Training, experiments, diagnostics, the report and checkpoints all go through this module. It needs no torch.

A training run holds config.yaml, metrics.jsonl and checkpoints/step-0001000/. An experiment holds plan.json,
base/inspect/, and for each arm and seed a training run, likelihood.json, and per budget samples.jsonl, timing.json and
scores.json.
An arm with tuned feedback has the checkpoint tuned/ instead of training runs. If samples fill in held-out rows,
prompts/ has those of each seed.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from arcmask.errors import ArcmaskError
from arcmask.files import writable, write_whole

CONFIG, METRICS, CHECKPOINTS, TRAINING = "config.yaml", "metrics.jsonl", "checkpoints", "train"
COMPLETE = "complete"  # the marker that is written last into a checkpoint folder
PLAN, LIKELIHOOD, SAMPLES, SCORES = "plan.json", "likelihood.json", "samples.jsonl", "scores.json"
TIMING = "timing.json"  # how long the samples of a cell took
TIMES = "times.json"  # how long stages of each kind took in an experiment, for the time that is left
INSPECTION, TUNED = Path("base", "inspect"), "tuned"
LOCK = ".lock"
_MOST_NESTED, _MOST_CHARACTERS = 50, 2**28
_RESTART_SECONDS = 180  # for the lock of a machine that is gone; NFS keeps it for 90 s or so
_VISIBLE_SECONDS = 300  # for a file of another machine; NFS shows it within 60 s by default


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return _read(path, json.loads, "JSON")


def read_settings(path: Path, read: Callable[[Path], Any] = read_json) -> dict[str, Any]:
    """Read a file of settings by name, JSON unless `read` is `read_yaml`."""
    settings = read(path)
    if not isinstance(settings, dict):
        raise ArcmaskError(f"{path} does not hold settings by name, but a {type(settings).__name__}")
    return settings


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    return _read(path, lambda text: yaml.safe_load(plain_yaml(text)), "YAML")


def read_yaml_text(path: Path) -> str:
    """Return the text of a YAML file of settings that can be read; none if it has no settings."""
    settings = read_settings(path, lambda path: read_yaml(path) or {})
    return path.read_text(encoding="utf-8") if settings else ""


def plain_yaml(text: str) -> str:
    """Return the text, or raise if it has aliases or is nested deeply: a few such lines can stand for gigabytes."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_NESTED or (depth and isinstance(event, yaml.AliasEvent)):
            raise ArcmaskError("YAML with aliases or deep nesting is not read")
        if isinstance(event, yaml.ScalarEvent) and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise ArcmaskError("YAML with invalid Unicode is not read")
    return text


def _read(path: Path, parse: Callable[[str], Any], kind: str) -> Any:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS)
        if len(text) == _MOST_CHARACTERS:
            raise ValueError(f"it has {_MOST_CHARACTERS:,} characters or more")
        return parse(text)
    except OSError as error:
        raise ArcmaskError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise ArcmaskError(f"{path} is not {kind} that can be read (it is nested too deeply)") from None
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ArcmaskError(f"{path} is not {kind} that can be read ({reason})") from error


@contextmanager
def interpreting(path: Path, content: str) -> Iterator[None]:
    """Say that a file does not hold `content` if the block, which uses what was read from it, fails on that."""
    try:
        yield
    except ArcmaskError as error:
        if type(error) is not ArcmaskError or path.name in str(error):
            raise
        raise ArcmaskError(f"{path} does not hold {content}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArcmaskError(f"{path} does not hold {content} ({type(error).__name__}: {reason})") from error


def read_lines(path: Path, key: str) -> list[dict[str, Any]]:
    """Read the objects of a JSON-lines file, each of which has `key`. A last line without its end is left out."""
    return list(iterate_lines(path, key)) if path.is_file() else []


def iterate_lines(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield what `read_lines` returns, one object at a time."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                is_record = isinstance(record[key], int)
            except (ValueError, KeyError, TypeError, RecursionError):
                is_record = False
            if not is_record:
                raise ArcmaskError(f"{path}, line {number}, is not a record with a {key}")
            yield record


def read_metrics(run: str | Path) -> list[dict[str, Any]]:
    """Read a training run's metrics, one record per step."""
    path = Path(run) / METRICS
    if not path.is_file():
        raise ArcmaskError(f"{run} has no {METRICS}")
    return read_lines(path, "step")


def write_yaml(path: Path, settings: Mapping[str, Any]) -> None:
    """Write settings as YAML; the file appears whole."""
    write_whole(path, yaml.safe_dump(dict(settings), sort_keys=False).encode())


def refuse_other_settings(
    path: Path, stored: Mapping[str, Any], current: Mapping[str, Any], advice: str = "give another name"
) -> None:
    """Raise if a path was written with other settings than the current ones; the message names each difference."""
    differences = [
        f"{key} is {stored.get(key)!r} there and {current.get(key)!r} here"
        for key in dict.fromkeys([*current, *stored])
        if stored.get(key) != current.get(key)
    ]
    if differences:
        raise ArcmaskError(f"{path} has other settings ({'; '.join(differences)}); {advice}")


def check_output(
    path: Path,
    settings: Mapping[str, Any],
    stored: Callable[[Path], Mapping[str, Any] | None],
    *,
    overwrite: bool,
) -> str | None:
    """Raise unless a command may write a file. Return a sentence about the file that it replaces, if there is one.

    A file that was written with the same settings is replaced. Any other is refused without `overwrite`. `stored`
    reads the settings of a file; None if the command did not write it.
    """
    if not writable(path).exists():
        return None
    if overwrite:
        return f"{path} is overwritten"
    advice, written_with = "give another --out, or --overwrite", stored(path)
    if written_with is None:
        raise ArcmaskError(f"{path} exists already and was not written by this command; {advice}")
    refuse_other_settings(path, written_with, settings, advice)
    return f"{path} exists with the same settings; it is replaced"


def newest_checkpoint(run: Path) -> Path | None:
    """Return the last complete checkpoint of a run, or None."""
    return max(complete_checkpoints(run), key=checkpoint_step, default=None)


def complete_checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run that have their final marker."""
    folders = (run / CHECKPOINTS).glob("step-*")
    return [path for path in folders if checkpoint_step(path) >= 0 and (path / COMPLETE).is_file()]


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step in a checkpoint folder's name, or -1 if it is not one."""
    digits = checkpoint.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -1


def find_run(checkpoint: str) -> Path | None:
    """Return the training run that a path is, or that a checkpoint path lies in."""
    path = Path(checkpoint).resolve()
    run = path.parent.parent if path.parent.name == CHECKPOINTS else path
    return run if (run / CHECKPOINTS).is_dir() and (run / CONFIG).is_file() else None


def cell_folder(experiment: Path, arm: str, seed: int, budget: int | None = None) -> Path:
    """Return the folder of an arm and a seed, or of one of its budgets."""
    folder = experiment / arm / f"seed-{seed}"
    return folder if budget is None else folder / f"steps-{budget}"


def prompts_file(experiment: Path, seed: int) -> Path:
    """Return the file of the prompts of a seed, if they are held-out rows."""
    return experiment / "prompts" / f"seed-{seed}.jsonl"


@contextmanager
def locked(path: Path, holder: str | None = None) -> Iterator[None]:
    """Hold the lock file `path`. The system releases it when the process ends, however it ends.

    Waits for another process; with `holder`, a description of what is locked, refuses instead and names its PID. A
    process of the same job, which has restarted its processes, is waited for: another machine may release it late.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, (pid, host, job) = FileLock(path), _read_holder(path)
    is_same_job = bool(job) and job == _job()
    try:
        lock.acquire(timeout=-1 if holder is None else _RESTART_SECONDS if is_same_job else 0)
    except Timeout:
        where = f" on {host}" if host != platform.node() else ""
        process = f"another process (PID {pid}{where})" if pid.isdecimal() else "another process"
        raise ArcmaskError(f"{process} holds {holder}; wait for it or give another name") from None
    try:
        path.write_text(str(os.getpid()) if holder is None else f"{os.getpid()}\n{platform.node()}\n{_job()}\n")
        yield
    finally:
        lock.release()


def _read_holder(path: Path) -> tuple[str, str, str]:
    """Return the PID, the machine and the job in a lock file; empty texts if there is none."""
    with suppress(OSError):
        pid, host, job, *_ = [*path.read_text(encoding="utf-8", errors="replace").splitlines(), "", "", ""]
        return pid.strip(), host, job
    return "", "", ""


def _job() -> str:
    """Return the name of the job that torchrun or SLURM runs this process in; it stays the same after a restart."""
    return os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID", "")


def wait_for_file(path: Path) -> None:
    """Wait until a file that another process has written can be seen here. A shared folder may show it late."""
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise ArcmaskError(
                f"{path} was written by another process, but is not there after {_VISIBLE_SECONDS} s; all machines "
                "must share the folder"
            )
        time.sleep(0.2)


@contextmanager
def locked_run(folder: Path) -> Iterator[None]:
    """Hold a run folder for this process. After an error, a folder to which nothing was written is as it was before."""
    lock, is_new = folder / LOCK, not folder.exists()
    had_lock = lock.exists()
    try:
        with locked(lock, f"the run folder {folder}"):
            yield
    except BaseException as error:
        if not had_lock:
            lock.unlink(missing_ok=True)
        if is_new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, OSError):
            raise ArcmaskError(f"the run folder {folder} cannot be written: {error.strerror or error}") from error
        raise
