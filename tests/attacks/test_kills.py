"""A command that is killed at any file event ends, when it is run again, as if it had not been killed.

Every second kill also tears the file that was being written. The second run is killed too, half as far on; the third
one finishes, and must leave the files of an unbroken run, the same bytes but for measured times, and nothing else.

What the first kill leaves is a copy of the folder of one unbroken run, taken at the event: this saves the run up to it.
The quick test kills in earnest, and finds the same files as in the copy.
"""

import json
import random
import re
import shutil
import signal
from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from forks import Forks
from world import PIECES, World

QUICK = {"prepare": 9, "train": 6, "report": 3, "reproduce": 3}  # events per command in the quick test, or 4
COMMANDS: dict[str, Callable[[World], list[str]]] = {
    "prepare": lambda world: world.prepare("out", *PIECES),
    "prepare with a BPE": lambda world: ["prepare", world.texts, "out", "--tokenizer", "bpe:262", "--length", "32"],
    "train": lambda world: world.train("run", "--steps", "6", "--keep", "1"),
    "sample": lambda world: world.sample(world.fed, "samples.jsonl"),
    "evaluate": lambda world: world.evaluate(world.samples, "scores.json"),
    "inspect": lambda world: world.inspect(world.run, "inspect"),
    "explore": lambda world: world.explore(world.fed, "page/explore.html"),
    "convert to a folder": lambda world: ["convert", world.run, "folder"],
    "convert to a file": lambda world: ["convert", world.run, "model.ckpt"],
    "tune": lambda world: world.tune(world.model, world.data, "tuned"),
    "report": lambda world: ["report", world.run, "--out", "report"],
    "reproduce": lambda world: world.reproduce("experiment"),
}
MEASURED = ("cost", "inspect", "report", "metrics", "timing", "times", "overhead")  # files with measured times


def content(path: Path, root: Path) -> object:
    """What must be equal in a file: all of it, but for measured times and process numbers."""
    if path.is_dir() or path.name.endswith(".lock"):
        return None
    if path.name == "metrics.jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return [record | {"tokens_per_second": 0, "memory_gb": 0} for record in records]
    if path.stem in MEASURED and (root / "experiment").exists():  # `reproduce` alone measures times
        return None
    return path.read_bytes()


def contents(root: Path) -> dict[str, object]:
    return {str(path.relative_to(root)): content(path, root) for path in sorted(root.rglob("*"))}


def remains(root: Path) -> set[tuple[str, bytes]]:
    """List the files that a kill leaves, and a hash of those that have no measured times in them."""
    return {
        (re.sub(r"\.writing-\w+", "", str(path.relative_to(root))), sha256(path.read_bytes()).digest())
        for path in root.rglob("*.*")
        if path.is_file() and not path.name.endswith(".lock") and path.name.split(".")[0] not in MEASURED
    }


def resume_everywhere(
    forks: Forks, words: list[str], folder: Path, choose: Callable[[int], list[int]], *, is_killed: bool
) -> tuple[int, list[str]]:
    """Resume a command from the chosen ones of its events; return how many there were, and what went wrong."""
    unbroken, copies = folder / "unbroken", folder / "copies"
    unbroken.mkdir()
    copies.mkdir()
    outcome = forks.run(words, unbroken, copies=copies, is_blank=True)
    assert outcome.code == 0, outcome.stderr
    expected, problems, events = contents(unbroken), [], choose(outcome.events)
    for event in events:
        case = folder / "case"
        if is_killed:
            case.mkdir()
            killed = forks.run(words, case, kill_at=event, is_torn=event % 2 == 1, is_blank=True)
            others = remains(case) ^ remains(copies / str(event))
            if killed.code != -signal.SIGKILL or others:
                problems.append(f"event {event}: the kill ended with {killed.code} and other files: {others}")
        else:
            (copies / str(event)).rename(case)
        forks.run(words, case, kill_at=(event + 1) // 2, is_torn=event % 4 > 1, is_blank=True)
        last = forks.run(words, case, is_blank=True)
        is_refused = "exists already" in last.stderr  # `convert` and `tune` write over nothing
        if last.code != (2 if is_refused else 0):
            problems.append(f"event {event}: the last run ended with {last.code}: {last.stderr[-300:]}")
        left = contents(case)
        differences = [name for name in sorted(expected | left) if expected.get(name, 0) != left.get(name, 0)]
        if differences:
            problems.append(f"event {event}: other files or contents: {differences[:5]}")
        shutil.rmtree(case)
    return len(events), problems


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_some_events_changes_nothing(command, world, forks, tmp_path):
    def choose(count: int) -> list[int]:
        draw, parts = random.Random(command), QUICK.get(command, 4)
        bounds = [round(number * count / parts) for number in range(parts + 1)]
        return [draw.randint(first + 1, last) for first, last in pairwise(bounds) if first < last]

    _, problems = resume_everywhere(forks, COMMANDS[command](world), tmp_path, choose, is_killed=True)
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_every_event_changes_nothing(command, world, forks, tmp_path):
    def choose(count: int) -> list[int]:
        return list(range(1, count + 1))

    count, problems = resume_everywhere(forks, COMMANDS[command](world), tmp_path, choose, is_killed=False)
    print(f"{command}: {count} kills, {len(problems)} problems")
    assert not problems, "\n".join(problems)
