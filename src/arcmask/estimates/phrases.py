"""Put estimates into words: time, memory and disk space."""

from collections.abc import Mapping

from arcmask.estimates.machine import Machine
from arcmask.estimates.memory import Memory

_SMALLER = {
    "training": "a smaller --micro_batch, or --checkpoint_blocks true",
    "sampling": "a smaller --sampling_batch",
    "scoring": "a smaller --evaluator_batch",
}


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def format_bytes(size: float) -> str:
    """Format a size in MB or GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size, 0) / 1e6:.0f} MB"


def describe_time(seconds: float, machine: Machine, world: int) -> str:
    """Say how long something takes, and on what."""
    where = f"{world} x {machine.name}" if world > 1 and machine.is_gpu else machine.name
    basis = "from its data sheet" if machine.is_card else "from a timed matrix product"
    return f"about {format_duration(seconds)} on {where}, {basis} and counted operations"


def describe_memory(parts: Mapping[str, Memory], machine: Machine) -> str:
    """Say what each process needs, for the most at a time, and whether the machine has it."""
    most = max(memory.total for memory in parts.values())
    texts = []
    for name, memory in parts.items():
        detail = {"weights and state": memory.state, "activations": memory.activations, "logits": memory.logits}
        inside = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in detail.items())
        texts.append(f"{name} {format_bytes(memory.total)} ({inside})")
    room = "" if machine.memory is None else f" of {format_bytes(machine.memory)}"
    fits = machine.memory is None or most < 0.9 * machine.memory
    largest = max(parts, key=lambda name: parts[name].total)
    advice = "" if fits else f"; too much: give {_SMALLER[largest]}"
    return f"memory: about {format_bytes(most)}{room} per process{advice}: {'; '.join(texts)}"


def describe_disk(parts: Mapping[str, float]) -> str:
    """Say how much disk space is needed for what."""
    shown = {name: size for name, size in parts.items() if size}
    inside = ", ".join(f"{name} {format_bytes(size)}" for name, size in shown.items())
    return f"disk: about {format_bytes(sum(shown.values()))}" + (f": {inside}" if inside else "")
