"""A command that is killed at any file event ends, when it is run again, as if it had not been killed.

Every second kill also tears the file that was being written. The second run is killed too, half as far on; the third
one finishes, and must leave the files of an unbroken run, the same bytes but for measured times, and nothing else.
"""

import json
import random
import shutil
import signal
from collections.abc import Callable
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
MEASURED = ("cost.json", "cost.png", "inspect.json", "inspect.md", "report.html")  # by `reproduce` alone


def content(path: Path, root: Path) -> object:
    """What must be equal in a file: all of it, but for measured times and process numbers."""
    if path.is_dir() or path.name.endswith(".lock"):
        return None
    if path.name == "metrics.jsonl":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return [record | {"tokens_per_second": 0, "memory_gb": 0} for record in records]
    if path.name in MEASURED and (root / "experiment").exists():
        return None
    return path.read_bytes()


def contents(root: Path) -> dict[str, object]:
    return {str(path.relative_to(root)): content(path, root) for path in sorted(root.rglob("*"))}


def kill_everywhere(
    forks: Forks, words: list[str], folder: Path, choose: Callable[[int], list[int]]
) -> tuple[int, list[str]]:
    """Kill a command at the chosen ones of its events; return how many there were, and what went wrong."""
    unbroken = folder / "unbroken"
    unbroken.mkdir()
    outcome = forks.run(words, unbroken)
    assert outcome.code == 0, outcome.stderr
    expected, problems, events = contents(unbroken), [], choose(outcome.events)
    for event in events:
        case = folder / f"case-{event}"
        case.mkdir()
        killed = forks.run(words, case, kill_at=event, is_torn=event % 2 == 1)
        again = forks.run(words, case, kill_at=(event + 1) // 2, is_torn=event % 4 > 1)
        last = forks.run(words, case)
        codes = [one.code for one in (killed, again, last)]
        is_refused = "exists already" in last.stderr  # `convert` and `tune` write over nothing
        if codes[0] != -signal.SIGKILL or codes[2] != (2 if is_refused else 0):
            problems.append(f"event {event}: the three runs ended with {codes}: {last.stderr[-300:]}")
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

    _, problems = kill_everywhere(forks, COMMANDS[command](world), tmp_path, choose)
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_kill_at_every_event_changes_nothing(command, world, forks, tmp_path):
    count, problems = kill_everywhere(
        forks, COMMANDS[command](world), tmp_path, lambda count: list(range(1, count + 1))
    )
    print(f"{command}: {count} kills, {len(problems)} problems")
    assert not problems, "\n".join(problems)
