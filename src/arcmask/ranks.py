"""The position of this process among those that share a command, from RANK, WORLD_SIZE and LOCAL_RANK.

torchrun, `accelerate launch` and `arcmask` itself set these variables. Under SLURM's `srun` they are set here.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from arcmask.errors import ArcmaskError

_planned: int | None = None  # of a dry run
_FIRST_PORT, _PORTS = 20_000, 10_000


def rank() -> int:
    """Return the number of this process, from 0; 0 if it is alone."""
    return _number("RANK", 0, world_size() - 1)


def local_rank() -> int:
    """Return the number of this process on its machine, from 0, which is also that of its GPU."""
    return _number("LOCAL_RANK", 0, world_size() - 1)


def world_size() -> int:
    """Return the number of processes; 1 if this one is alone."""
    return started_processes() if _planned is None else _planned


def local_world_size() -> int:
    """Return the number of processes on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1, world_size())


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_threads() -> int | None:
    """Return this process's share of the cores if torchrun has set one thread per process; None to leave it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("OMP_NUM_THREADS") != "1":
        return None
    return max(1, count_cores() // local_world_size())


@contextmanager
def planned(processes: int) -> Iterator[None]:
    """Let `world_size` return the number of processes that a command would start, to describe it without them."""
    global _planned
    before, _planned = _planned, processes
    try:
        yield
    finally:
        _planned = before


def is_launched() -> bool:
    """Return whether a launcher has started this process, after reading the variables of `srun`."""
    # `accelerate launch` sets the last one alone if it starts one process.
    names = ("RANK", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION")
    return any(name in os.environ for name in names) or _read_slurm()


def _read_slurm() -> bool:
    """Set torchrun's variables from those of `srun`. Return whether it has started several tasks.

    A batch script has SLURM's variables too, but it is no task of `srun`.
    """
    environment = os.environ
    is_step = "SLURM_STEP_ID" in environment or environment.get("ENVIRONMENT") != "BATCH"
    tasks = environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS", "1"))
    if "SLURM_PROCID" not in environment or not is_step or tasks == "1":
        return False
    names = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    nodes = next((environment[name] for name in names if name in environment), "localhost")
    digits = "".join(re.findall(r"\d", environment.get("SLURM_JOB_ID", "") + environment.get("SLURM_STEP_ID", "")))
    environment |= {
        "RANK": environment["SLURM_PROCID"],
        "LOCAL_RANK": environment.get("SLURM_LOCALID", "0"),
        "WORLD_SIZE": tasks,
    }
    environment.setdefault("MASTER_ADDR", first_host(nodes))
    environment.setdefault("MASTER_PORT", str(_FIRST_PORT + int(digits or "0") % _PORTS))  # jobs may share a node
    if per_node := re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "")):
        environment.setdefault("LOCAL_WORLD_SIZE", per_node[0])
    return True


def first_host(nodes: str) -> str:
    """Return the first host of a list as SLURM writes it.

    >>> from arcmask.ranks import first_host
    >>> first_host("gpu[003-006,009],login1")
    'gpu003'
    """
    first = re.match(r"(?:\[[^]]*\]|[^,\[])*", nodes)
    assert first is not None
    return re.sub(r"\[(\w+)[^]]*\]", r"\1", first[0])


def started_processes() -> int:
    """Return the number of processes that a launcher has started; 1 if this one is alone."""
    return _number("WORLD_SIZE", 1, 10**6)


def _number(name: str, low: int, high: int) -> int:
    text = os.environ.get(name, str(low))
    if not text.isdecimal() or len(text) > 7 or not low <= int(text) <= high:
        raise ArcmaskError(
            f"the environment variable {name} is {text!r}, but must be a number from {low} to {high}; torchrun sets "
            "WORLD_SIZE, the number of processes, and RANK and LOCAL_RANK, which are below it"
        )
    return int(text)
