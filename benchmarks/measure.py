"""Timing side by side, and peak extra memory, on a noisy machine: interleaved repeats, the minimum of each."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Work = Callable[[], object]


def fastest(works: Mapping[str, Work], repeats: int, warm_up: int = 2) -> dict[str, float]:
    """Seconds of the fastest repeat of each, taken in turns so that a slow moment hits all alike."""
    best = dict.fromkeys(works, float("inf"))
    for repeat in range(-warm_up, repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            taken = time.perf_counter() - start
            if repeat >= 0:
                best[name] = min(best[name], taken)
    return best


def peak_extra_bytes(work: Work) -> int:
    """How far the process's resident memory rises above its level before the call (Linux; sampled while it runs)."""
    work()
    gc.collect()
    # Give freed heap pages back to the system, so that reused ones count again.
    ctypes.CDLL(None).malloc_trim(0)
    before = _resident()
    peak, done = before, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, _resident())
            time.sleep(0.0002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = work()
    peak = max(peak, _resident())
    done.set()
    watcher.join()
    del result
    return peak - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def use_threads(count: int) -> str:
    """Fix the number of threads and say on what this runs."""
    torch.set_num_threads(count)
    return f"torch {torch.__version__}, {count} threads, {torch.backends.cpu.get_cpu_capability()}"


def table(rows: list[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Plain text columns; the first to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, tuple("-" * w for w in widths), *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join(lines)
