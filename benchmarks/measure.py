"""Measure run time and peak memory on a noisy machine: repeats are interleaved, and the minimum counts."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

Work = Callable[[], object]


def fastest(works: Mapping[str, Work], repeats: int, warm_up: int = 2) -> dict[str, float]:
    """Return the seconds of the fastest repeat of each; repeats alternate, so a slow moment affects all alike."""
    best = dict.fromkeys(works, float("inf"))
    for repeat in range(-warm_up, repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds = time.perf_counter() - start
            if repeat >= 0:
                best[name] = min(best[name], seconds)
    return best


def peak_extra_bytes(work: Work) -> int:
    """Return the rise of the process's resident memory during a call, in bytes (Linux only, sampled)."""
    work()
    gc.collect()
    # Return freed heap pages to the system, so that reused pages count again.
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
    """Set the number of threads, and return a description of the platform."""
    torch.set_num_threads(count)
    return f"torch {torch.__version__}, {count} threads, {torch.backends.cpu.get_cpu_capability()}"


def table(rows: list[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Return a table as plain text: the first column is left-aligned, the others are right-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, tuple("-" * w for w in widths), *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join(lines)
