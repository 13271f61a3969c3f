"""Which results of an experiment are there. A result of a smaller plan does not count where the plan has grown."""

from dataclasses import asdict
from pathlib import Path

from arcmask.run_folder import interpreting, newest_checkpoint, read_settings
from arcmask.settings.inspect import InspectConfig


def is_trained(run: Path, steps: int) -> bool:
    """Whether a training run has reached its last step."""
    return trained_steps(run) == steps


def trained_steps(run: Path) -> int:
    """Return the step of a training run's newest checkpoint; 0 if it has none."""
    newest = newest_checkpoint(run)
    return 0 if newest is None else int(newest.name.removeprefix("step-"))


def is_inspected(config: InspectConfig) -> bool:
    """Whether the base was inspected with the operators, rows, samples and steps of the plan."""
    path = config.folder / "inspect.json"  # the file that is written last
    if not path.exists():
        return False
    stored, current = read_settings(path), asdict(config) | {"operators": list(config.operators)}
    names = ("operators", "gain_tokens", "generate", *(("samples", "steps") if config.generate else ()))
    return all(stored.get(name) == current[name] for name in names)


def is_measured(path: Path, seed: int) -> bool:
    """Whether a bound is there with the rows and noise of this seed; older experiments used those of seed 0."""
    if not path.exists():
        return False
    with interpreting(path, "held-out bounds"):
        return bool(read_settings(path)["plain"]["seed"] == seed)


def is_scored(path: Path, count: int) -> bool:
    """Whether as many samples of a cell are scored as the plan has."""
    if not path.exists():
        return False
    with interpreting(path, "scores and the count of their samples"):
        return bool(read_settings(path)["count"] >= count)


def count_lines(path: Path) -> int:
    """Return the number of samples in a file; 0 if there is no file."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
