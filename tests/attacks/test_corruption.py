"""Every damaged file is read, or named in one sentence: no traceback, no crash, no hang.

A case damages one file of one kind of folder in one way and runs one command over it. The quick test draws cases from a
seed; the slow one runs all of them.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from damage import copy, damage, damages_of, has_draws
from forks import Forks, Outcome
from world import PIECES, TRAIN, World

QUICK = 17  # cases per kind in the quick test


@dataclass(frozen=True)
class Kind:
    """A kind of folder or file: where one is, the name of its copy, and the commands that read the copy."""

    source: Callable[[World], str]
    name: str
    readers: dict[str, Callable[[World], list[str]]]
    skip: tuple[str, ...] = ()


def _checkpoint(name: str) -> dict[str, Callable[[World], list[str]]]:
    return {
        "sample": lambda world: world.sample(name, "out.jsonl"),
        "inspect": lambda _: ["inspect", name, "--only", "norms", "--out", "out"],
        "convert": lambda _: ["convert", name, "out"],
        "explore": lambda world: world.explore(name, "out.html"),
        "likelihood": lambda world: ["evaluate", "--checkpoint", name, "--data", world.data, "--rows", "2"],
        "train from it": lambda world: world.train("out", "--init", name, "--steps", "1"),
        "tune": lambda world: world.tune(name, world.data, "out"),
    }


KINDS = {
    "checkpoint": Kind(lambda world: world.fed, "fed-7", _checkpoint("fed-7")),
    "Lightning file": Kind(lambda world: world.ckpt, "fed-7.ckpt", _checkpoint("fed-7.ckpt")),
    "training run": Kind(
        lambda world: world.run,
        "run-7",
        {
            **_checkpoint("run-7"),
            "train": lambda world: world.train("run-7"),
            "report": lambda _: ["report", "run-7"],
            "inspect metrics": lambda _: ["inspect", "run-7", "--only", "training", "--out", "out"],
        },
    ),
    "prepared corpus": Kind(
        lambda world: world.data,
        "data-7",
        {
            "rows": lambda _: ["data-7"],
            "prepare": lambda world: world.prepare("data-7"),
            "verify": lambda world: ["prepare", world.texts, "data-7", "--verify"],
            "train": lambda world: world.train("out", "--data", "data-7", "--steps", "1"),
            "evaluate": lambda world: [*world.evaluate(world.samples, "out.json"), "--reference", "data-7"],
            "likelihood": lambda world: ["evaluate", "--checkpoint", world.fed, "--data", "data-7", "--rows", "2"],
            "tune": lambda world: world.tune(world.model, "data-7", "out"),
            "inspect": lambda world: ["inspect", world.fed, "--data", "data-7", "--only", "norms", "--out", "out"],
        },
    ),
    "unfinished corpus": Kind(
        lambda world: world.partial, "data-7.partial", {"prepare": lambda world: world.prepare("data-7", *PIECES)}
    ),
    "experiment": Kind(
        lambda world: world.experiment,
        "experiment-7",
        {
            "report": lambda _: ["report", "experiment-7", "--out", "out"],
            "reproduce": lambda world: world.reproduce("experiment-7"),
        },
        skip=("report", "none"),
    ),
    "samples": Kind(
        lambda world: world.samples,
        "samples-7.jsonl",
        {
            "sample": lambda world: world.sample(world.fed, "samples-7.jsonl"),
            "evaluate": lambda world: world.evaluate("samples-7.jsonl", "out.json"),
            "reference": lambda world: [*world.evaluate(world.samples, "out.json"), "--reference", "samples-7.jsonl"],
        },
    ),
    "scores": Kind(
        lambda world: world.scores,
        "scores-7.json",
        {"evaluate": lambda world: world.evaluate(world.samples, "scores-7.json")},
    ),
    "settings": Kind(
        lambda world: world.settings,
        "train-7.yaml",
        {"train": lambda _: ["train", "sotu-tiny-spherical", "--config", "train-7.yaml", "--run", "out", "--dry-run"]},
    ),
}


@dataclass(frozen=True)
class Case:
    """A file of a kind, the damage, and the reader."""

    kind: str
    file: str
    damage: str
    reader: str
    seed: int = 0


def cases(kind: str, world: World, seeds: int) -> list[Case]:
    """All cases of a kind; those that depend on a seed, with so many of them."""
    source = Path(KINDS[kind].source(world))
    paths = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    names = {str(path.relative_to(source)): path for path in paths}
    return [
        Case(kind, name, way, reader, seed)
        for seed, (name, path) in product(range(seeds), names.items())
        if not name.startswith(KINDS[kind].skip or " ")
        for way, reader in product(damages_of(path), KINDS[kind].readers)
        if seed == 0 or has_draws(way)
    ]


def problem(case: Case, outcome: Outcome) -> str | None:
    """Say what is wrong with the outcome of a case, or return None."""
    last = outcome.stderr.strip().rpartition("\n")[2]
    names = {Path(case.file).name or KINDS[case.kind].name, KINDS[case.kind].name}
    if Path(KINDS[case.kind].name, case.file).name.endswith(
        (".safetensors", ".ckpt")
    ):  # weights can be finite, and too large to compute with
        names |= {"the logits", "not finite"}
    if case.kind == "settings":  # a value that can be read is named like an option
        names |= {*TRAIN, "data", "init", "a number is too large", "does not accept option"}
    if not outcome.is_clean:
        return f"{case} ended with {outcome.code}: {outcome.stderr[-600:]}"
    if outcome.code == 2 and not any(name in last for name in names):
        return f"{case} does not name the file: {last}"
    return None


def run(case: Case, world: World, forks: Forks, folder: Path) -> str | None:
    kind = KINDS[case.kind]
    copy(Path(kind.source(world)), folder / kind.name)
    damage(folder / kind.name / case.file if case.file != "." else folder / kind.name, case.damage, case.seed)
    module = "readers" if case.reader == "rows" else "arcmask"
    is_blank = case.reader == "reproduce"  # `report` draws the same figures
    return problem(case, forks.run(kind.readers[case.reader](world), folder, module=module, is_blank=is_blank))


def run_all(chosen: list[Case], world: World, forks: Forks, folder: Path) -> list[str]:
    problems = []
    for number, case in enumerate(chosen):
        home = folder / str(number)
        home.mkdir()
        problems += filter(None, [run(case, world, forks, home)])
        shutil.rmtree(home)
    return problems


@pytest.mark.parametrize("kind", KINDS)
def test_some_damaged_files_are_read_or_named(kind, world, forks, tmp_path):
    chosen = random.Random(kind).sample(every := cases(kind, world, 9), min(QUICK, len(every)))
    problems = run_all(chosen, world, forks, tmp_path)
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_damaged_file_is_read_or_named(kind, world, forks, tmp_path):
    every = cases(kind, world, 2)
    problems = run_all(every, world, forks, tmp_path)
    print(f"{kind}: {len(every)} cases, {len(problems)} problems")
    assert not problems, "\n".join(problems)
