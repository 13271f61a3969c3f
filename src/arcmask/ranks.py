"""The position of this process among those that torchrun started, from RANK, WORLD_SIZE and LOCAL_RANK."""

import os

from arcmask.errors import ArcmaskError


def rank() -> int:
    """Return the number of this process, from 0; 0 without torchrun."""
    return _number("RANK", 0, world_size() - 1)


def local_rank() -> int:
    """Return the number of this process on its machine, from 0, which is also that of its GPU."""
    return _number("LOCAL_RANK", 0, world_size() - 1)


def world_size() -> int:
    """Return the number of processes; 1 without torchrun."""
    return _number("WORLD_SIZE", 1, 10**6)


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
