"""Run commands in forks of one process that has imported everything, and kill them at any file event.

A fork costs milliseconds where a new process costs seconds. A file event is one that can change a folder: opening a
file for writing, fsync, rename, remove, mkdir, rmdir, truncate. Events outside the working folder do not count.
"""

import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

CPU_SECONDS, WALL_SECONDS, MEMORY = 20, 600, 12 << 30
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code (negative for a signal), its output, and the number of file events."""

    code: int
    stdout: str
    stderr: str
    events: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether the command succeeded, or refused with one sentence as its last line."""
        last = self.stderr.strip().rpartition("\n")[2]
        is_refusal = self.code == 2 and last.startswith("arcmask: ")
        return (self.code == 0 or is_refusal) and "Traceback" not in self.stderr


class Fork:
    """A command that runs in a fork; end it with `wait`."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks, self.pid = forks, pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return bool(self._forks.ask({"poll": self.pid}))

    def signal(self, number: int) -> None:
        """Send it a signal, also if it has ended: until `wait` it keeps its number."""
        os.kill(self.pid, number)

    def wait(self) -> Outcome:
        """Return how it ended."""
        return Outcome(**self._forks.ask({"wait": self.pid}))


class Forks:
    """A process that forks for each command, with the arcmask of this process or of the folder `source`.

    It ends with `close`.
    """

    def __init__(self, source: Path | None = None) -> None:
        paths = [*([] if source is None else [str(source)]), *filter(None, sys.path)]
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        kill_at: int = 0,
        is_torn: bool = False,
        copies: Path | None = None,
        module: str = "arcmask",
        is_blank: bool = False,
        stdin: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Fork:
        """Start a command in a folder; with `kill_at`, kill it when it comes to that event, counted from 1.

        With `is_torn` half of what was last written and not flushed is lost. With `copies`, the folder as it is at
        each event N is copied to COPIES/N: the files that a kill at that event leaves, torn for odd N. Another `module`
        than arcmask is a test module with a function `read(words)`, or the path of a program. With `is_blank`, figures
        are written but not drawn, which takes most of the time of an experiment. The command gets the environment of
        this moment, with the changes of `environment`.
        """
        job = {"words": list(words), "folder": str(folder), "kill_at": kill_at, "is_torn": is_torn, "module": module}
        job |= {"copies": None if copies is None else str(copies), "is_blank": is_blank, "stdin": stdin}
        job |= {"environment": {**os.environ, **ENVIRONMENT, **environment}}
        return Fork(self, self.ask(job))

    def run(self, words: Sequence[str], folder: Path, **settings: Any) -> Outcome:
        """Run a command to its end; the settings are those of `start`."""
        return self.start(words, folder, **settings).wait()

    def run_ranks(self, words: Sequence[str], folder: Path, count: int = 2) -> list[Outcome]:
        """Run a command in several processes that share its work, as torchrun starts them."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        ranks = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(count)]
        texts = [{name: str(value) for name, value in rank.items()} for rank in ranks]
        started = [self.start(words, folder, environment=environment) for environment in texts]
        return [fork.wait() for fork in started]

    def ask(self, question: dict[str, Any]) -> Any:
        """Send the process a question, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    import importlib

    import blank_figures  # noqa: F401
    import jinja2.ext  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer  # noqa: F401

    import arcmask.diagnostics.drawing
    import arcmask.report  # noqa: F401
    from arcmask.cli import COMMANDS, build_parser
    from arcmask.data import packing
    from arcmask.model.denoiser import has_fast_bfloat16

    torch.set_num_threads(1)
    packing._CHUNK = 1 << 13  # a small corpus, too, is encoded and recorded in several pieces
    has_fast_bfloat16("cpu")  # it starts a process, once
    build_parser()
    for name in COMMANDS:
        importlib.import_module(f"arcmask.commands.{name}")
    started: dict[int, Started] = {}
    for line in sys.stdin:
        question = json.loads(line)
        answer: Any
        if "poll" in question:
            answer = started[question["poll"]].is_running()
        elif "wait" in question:
            answer = started.pop(question["wait"]).wait()
        else:
            child = _fork(question)
            answer, started[child.pid] = child.pid, child
        print(json.dumps(answer), flush=True)
    os._exit(0)  # there is nothing to clean up, which takes Python a second


class Started:
    """A fork as its parent sees it: what it prints goes to files in memory."""

    def __init__(self, pid: int, *handles: int) -> None:
        self.pid, self._handles, self._end = pid, handles, os.pidfd_open(pid)

    def is_running(self, seconds: float = 0) -> bool:
        """Whether it runs; wait for its end so long at most."""
        return not select.select([self._end], [], [], seconds)[0]

    def wait(self) -> dict[str, Any]:
        if self.is_running(WALL_SECONDS):
            os.kill(self.pid, signal.SIGABRT)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._end)
        out, errors, count = map(_content, self._handles)
        return {"code": code, "stdout": out, "stderr": errors, "events": int(count or 0)}


def _fork(job: dict[str, Any]) -> Started:
    out, errors, count = (os.memfd_create(name) for name in ("out", "errors", "count"))
    child = os.fork()
    if child == 0:
        answers = os.memfd_create("in")
        os.pwrite(answers, job["stdin"].encode(), 0)
        os.dup2(answers, 0)
        os.dup2(out, 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        events = _count_events(job, lambda number: os.pwrite(count, b"%d" % number, 0))
        code = _call(job)
        os.pwrite(count, b"%d" % events(), 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return Started(child, out, errors, count)


def _content(handle: int) -> str:
    with open(handle, "rb") as file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _call(job: dict[str, Any]) -> int:
    try:
        if job["is_blank"]:
            import blank_figures
            import pytest

            blank_figures.leave_blank(pytest.MonkeyPatch())
        if job["module"] == "arcmask":
            from arcmask.cli import main

            sys.argv = ["arcmask", *job["words"]]
            main(job["words"])
        elif job["module"].endswith(".py"):
            sys.argv = [job["module"], *job["words"]]
            runpy.run_path(job["module"], run_name="__main__")
        else:
            import importlib

            importlib.import_module(job["module"]).read(job["words"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _count_events(job: dict[str, Any], save: Callable[[int], object]) -> Callable[[], int]:
    """Count the file events in the working folder, and kill this process at the chosen one."""
    root, fsync = os.getcwd(), os.fsync
    number = 0
    is_copying = False
    unflushed: tuple[str, int] | None = None  # the file that was opened last, and its size then

    def tear(folder: str) -> None:
        """Cut what was written to the last file, in this folder or a copy of it, to half."""
        if unflushed is not None and os.path.isfile(unflushed[0]):
            size = os.path.getsize(unflushed[0])
            path = os.path.join(folder, os.path.relpath(unflushed[0], root))
            os.truncate(path, min(size, (unflushed[1] + size) // 2))

    def copy() -> None:
        nonlocal is_copying
        is_copying = True
        target = os.path.join(job["copies"], str(number))
        shutil.copytree(root, target, symlinks=True)
        if number % 2:
            tear(target)
        is_copying = False

    def event(path: str, directory: int = -1) -> bool:
        nonlocal number
        if directory >= 0:
            path = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), path)
        if not os.path.abspath(path).startswith(root + os.sep):
            return False
        number += 1
        if job["copies"] is not None:
            copy()
        if number == job["kill_at"]:
            if job["is_torn"]:
                tear(root)
            save(number)
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal unflushed
        if is_copying or (number and number == job["kill_at"]):
            return
        if name == "open" and isinstance(arguments[0], str | bytes | os.PathLike) and arguments[2] & _WRITES:
            path = os.fsdecode(arguments[0])
            if event(path):
                is_cut = arguments[2] & os.O_TRUNC or not os.path.exists(path)
                unflushed = path, 0 if is_cut else os.path.getsize(path)
        elif name in _EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
            directory = arguments[-1] if name in ("os.remove", "os.rmdir", "os.mkdir") else -1
            event(os.fsdecode(arguments[0]), directory)
            unflushed = None if name == "os.rename" else unflushed

    def counted_fsync(handle: int) -> None:
        nonlocal unflushed
        event(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)
        unflushed = None

    os.fsync = counted_fsync
    sys.addaudithook(hook)
    return lambda: number


if __name__ == "__main__":
    _serve()
