"""Start the processes of a command, one per GPU, with torch's elastic launcher, and learn how they ended.

The first process writes to the terminal. The others write to files that are shown if one of them fails. A process that
cannot go on leaves a sentence in the file that torch's launcher names in TORCHELASTIC_ERROR_FILE, and the launching
process prints one of these sentences.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError, Stopped
from arcmask.ranks import count_cores, is_launched, rank, world_size

_LAUNCHER = "ARCMASK_LAUNCHER"  # the number of the process that has started this one
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # which torch's launcher handles
_MOST = 1024
_PATIENCE = 600  # seconds for a training step and its checkpoint, after a signal
_LOG_LINES = 30  # of a process that failed without a sentence
# How the others end when one process has failed, and how surely that is the reason.
_COLLATERAL = {-signal.SIGKILL: 1, -signal.SIGTERM: 2, 128 + signal.SIGTERM: 2, Stopped.EXIT_CODE: 2}


@dataclass(frozen=True)
class Failure:
    """How one of the processes ended: its exit code, and its sentence if it left one."""

    rank: int
    code: int
    message: str | None = None
    is_lost: bool = False  # whether it ended because another one did


def is_launched_here() -> bool:
    """Return whether a launching process of arcmask has started this one."""
    return _LAUNCHER in os.environ


def count_gpus() -> int:
    """Return the number of GPUs that torch finds on this machine."""
    import torch

    return torch.cuda.device_count()


def check_processes(processes: int, gpus: int) -> None:
    """Raise unless a command may start so many processes. Without a GPU they share the processor."""
    if is_launched():
        started = f"{world_size()} process{'' if world_size() == 1 else 'es'}"
        raise ArcmaskError(
            f"--processes is {processes}, but a launcher has started this command with {started}; leave it out"
        )
    if not 1 <= processes <= _MOST:
        raise ArcmaskError(f"--processes is {processes}, but must lie between 1 and {_MOST:,}")
    if gpus and processes > gpus:
        raise ArcmaskError(f"--processes is {processes}, but there {'is 1 GPU' if gpus == 1 else f'are {gpus} GPUs'}")


def launch(words: Sequence[str], processes: int) -> tuple[int, str | None]:
    """Run `arcmask WORDS` in several processes. Return the exit code, and a sentence to print if there is one."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with tempfile.TemporaryDirectory(prefix="arcmask-") as folder, _environment(processes):
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(folder, redirects=dict.fromkeys(range(1, processes), Std.ALL)),
        )
        # torch replaces ${local_rank} in an argument. -P leaves the working folder out of the path, as `arcmask` does.
        command = ("-P", "-m", "arcmask", *(word.replace("$", "$$") for word in words))
        try:
            elastic_launch(config, sys.executable)(*command)
        except SignalException as error:
            failures = [failure for failure in _read_failures(Path(folder)) if failure.code == Stopped.EXIT_CODE]
            return (failures[0].code, failures[0].message) if failures else (128 + error.sigval, None)
        except ChildFailedError as error:
            known = {failure.rank: failure for failure in _read_failures(Path(folder))}
            ended = [known.get(rank, Failure(rank, one.exitcode)) for rank, one in error.failures.items()]
            return _explain(_first(ended), folder)
    return 0, None


@contextmanager
def _environment(processes: int) -> Iterator[None]:
    """Set what the processes need to know, and let torch's launcher print nothing and keep no signal."""
    threads = max(1, count_cores() // processes)
    defaults = {"OMP_NUM_THREADS": str(threads), "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(_PATIENCE)}
    before = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    os.environ.update({**defaults, **before, _LAUNCHER: str(os.getpid())})
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)
        os.environ.clear()
        os.environ.update(before)


def _read_failures(folder: Path) -> list[Failure]:
    """Return the failures that processes recorded, by rank."""
    failures = []
    for path in folder.rglob("error.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # killed while it wrote
            failures.append(Failure(**json.loads(path.read_bytes())["arcmask"]))
    return sorted(failures, key=lambda failure: failure.rank)


def _first(failures: Sequence[Failure]) -> Failure:
    """Return the failure that the others follow from."""
    return min(failures, key=lambda one: (one.is_lost, _COLLATERAL.get(one.code, 0), one.message is None, one.rank))


def _explain(failure: Failure, folder: str) -> tuple[int, str | None]:
    """Return the exit code of a failed command and its sentence; show the output of a process that left none."""
    if failure.message is not None:
        return failure.code, failure.message
    if failure.code < 0:
        name = signal.Signals(-failure.code).name
        return 128 - failure.code, f"process {failure.rank} was ended by {name}; run the same command again to resume"
    if failure.rank > 0:
        for path in Path(folder).rglob(f"{failure.rank}/stderr.log"):
            lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            print("\n".join(lines), file=sys.stderr, flush=True)
    return failure.code, None


def record_failure(message: str, code: int, is_lost: bool = False) -> bool:
    """Leave a sentence for the process that has started this one; return whether it will print it."""
    path = os.environ.get(_ERROR_FILE)
    if not path:
        return False
    failure = {"rank": rank(), "code": code, "message": message, "is_lost": is_lost}
    extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
    content: Mapping[str, Any] = {"message": {"message": message, "extraInfo": extra}, "arcmask": failure}
    with suppress(OSError):
        Path(path).write_text(json.dumps(content))
        return is_launched_here()
    return False


def end_with_launcher() -> None:
    """End this process when the one that has started it is gone, if that is a launcher; it would have no end else."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def lost_connection(error: BaseException) -> bool:
    """Return whether an error says that another process of this command is gone."""
    if not isinstance(error, RuntimeError) or world_size() == 1:
        return False
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error) or "NCCL" in str(error)


def disconnect() -> None:
    """Leave the group of processes, if this one has joined it; NCCL warns otherwise."""
    if "torch.distributed" in sys.modules:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
