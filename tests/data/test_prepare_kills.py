"""`prepare` can be killed at any moment, any number of times: the result is the same, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arcmask.data import PrepareConfig, packing, prepare


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Killed(BaseException):
    """What nothing catches."""


@pytest.mark.parametrize("tokenizer", ["text8", "bpe:300"])
def test_a_kill_at_any_write_to_the_disk_changes_nothing(folder_of_texts, tmp_path, monkeypatch, tokenizer):
    monkeypatch.setattr(packing, "_CHUNK", 1 << 13)
    settings = {"corpus": str(folder_of_texts), "tokenizer": tokenizer, "length": 32, "shard_rows": 300}
    prepare(PrepareConfig(out=str(tmp_path / "unbroken"), **settings))
    expected = contents(tmp_path / "unbroken")
    fsync = os.fsync

    def is_killed_at(write: int, out: Path) -> bool:
        left = write

        def fsync_or_die(handle: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            fsync(handle)

        monkeypatch.setattr(os, "fsync", fsync_or_die)
        try:
            prepare(PrepareConfig(out=str(out), **settings))
        except Killed:
            return True
        return False

    kills = 0
    while is_killed_at(kills, out := tmp_path / f"out-{kills}"):
        tear(out.with_name(out.name + ".partial"))
        is_killed_at(kills // 2, out)
        assert not is_killed_at(1000, out)
        assert contents(out) == expected
        kills += 1
    assert kills > 30
    assert not list(tmp_path.glob("*.partial"))


def tear(partial: Path) -> None:
    """What a kill in the middle of a write leaves: more than was recorded, and files that were not renamed."""
    if not partial.exists() or (partial / "index.json").exists():
        return
    for path in partial.glob("*.bin"):
        path.write_bytes(path.read_bytes() + b"half a row")
    (partial / "validation-00007.bin").write_bytes(b"more")
    (partial / "index.json.tmp").write_bytes(b"{")
    (partial / "tokenizer.tmp").mkdir(exist_ok=True)
    (partial / "tokenizer.tmp" / "tokenizer.json").write_bytes(b"{")


# For every line "OUT SECONDS": forks a process that prepares, everything imported, and kills it after so many seconds.
KILLER = """
import os, signal, sys, time
from arcmask.data import PrepareConfig, packing
packing._CHUNK = 1 << 15
for line in sys.stdin:
    out, seconds = line.split()
    child = os.fork()
    if child == 0:
        settings = {"length": 32, "shard_rows": 64, "holdout": "every:7"}
        packing.prepare(PrepareConfig(corpus=sys.argv[1], out=out, **settings))
        os._exit(0)
    if float(seconds) >= 0:
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_ten_kills_at_random_moments_change_nothing(speeches, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for i in range(60):
        (corpus / f"{i:03d}.txt").write_text(f"{i}\n" + 8 * speeches[i % 40], encoding="utf-8")
    killer = subprocess.Popen(
        [sys.executable, "-c", KILLER, str(corpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def run(name: str, seconds: float = -1) -> int:
        killer.stdin.write(f"{tmp_path / name} {seconds}\n")
        killer.stdin.flush()
        return int(killer.stdout.readline())

    with killer:
        assert run("warm-up") == 0
        began = time.monotonic()
        assert run("unbroken") == 0
        duration = time.monotonic() - began
        draw = random.Random(0)
        kills, complete = 0, 0
        while kills < 10 or not complete:
            kills += run(f"out-{complete}", draw.uniform(0, duration) if kills < 10 else -1) == -signal.SIGKILL
            complete += (tmp_path / f"out-{complete}").exists()
        killer.stdin.close()
    expected = contents(tmp_path / "unbroken")
    assert len(expected) > 20
    for number in range(complete):
        assert contents(tmp_path / f"out-{number}") == expected
