"""Run commands in forks of one process that has imported everything, and kill them at any file event.

A fork costs milliseconds where a new process costs seconds. A file event is one that can change a folder: opening a
file for writing, fsync, rename, remove, mkdir, rmdir, truncate. Events outside the working folder do not count.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU_SECONDS, WALL_SECONDS, MEMORY = 20, 120, 12 << 30
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code (negative for a signal), its output, and the number of file events."""

    code: int
    stdout: str
    stderr: str
    events: int

    @property
    def is_clean(self) -> bool:
        """Whether the command succeeded, or refused with one sentence as its last line."""
        last = self.stderr.strip().rpartition("\n")[2]
        is_refusal = self.code == 2 and last.startswith("arcmask: ")
        return (self.code == 0 or is_refusal) and "Traceback" not in self.stderr


class Forks:
    """A process that forks for each command. It ends with `close`."""

    def __init__(self) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "100",
        }
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        kill_at: int = 0,
        is_torn: bool = False,
        copies: Path | None = None,
        module: str = "arcmask",
    ) -> Outcome:
        """Run a command in a folder; with `kill_at`, kill it when it comes to that event, counted from 1.

        With `is_torn` half of what was last written and not flushed is lost. With `copies`, the folder as it is at
        each event N is copied to COPIES/N: the files that a kill at that event leaves, torn for odd N. Another `module`
        than arcmask is a test module with a function `read(words)`.
        """
        job = {"words": list(words), "folder": str(folder), "kill_at": kill_at, "is_torn": is_torn, "module": module}
        job["copies"] = None if copies is None else str(copies)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    import importlib

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
    for line in sys.stdin:
        print(json.dumps(_fork(json.loads(line))), flush=True)


def _fork(job: dict[str, Any]) -> dict[str, Any]:
    out, errors, count = (os.memfd_create(name) for name in ("out", "errors", "count"))
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(job["folder"])
        events = _count_events(job, lambda number: os.pwrite(count, b"%d" % number, 0))
        code = _call(job)
        os.pwrite(count, b"%d" % events(), 0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    deadline = time.monotonic() + WALL_SECONDS
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGABRT)
        time.sleep(0.002)
    texts = [_content(handle) for handle in (out, errors, count)]
    code = os.waitstatus_to_exitcode(status[1])
    return {"code": code, "stdout": texts[0], "stderr": texts[1], "events": int(texts[2] or 0)}


def _content(handle: int) -> str:
    with open(handle, "rb") as file:
        file.seek(0)
        return file.read().decode(errors="replace")


def _call(job: dict[str, Any]) -> int:
    try:
        if job["module"] == "arcmask":
            from arcmask.cli import main

            sys.argv = ["arcmask", *job["words"]]
            main(job["words"])
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
