"""An operator of one's own goes through every command: a file inside the package, or FILE.py:FUNCTION from outside."""

import json
import shutil
from pathlib import Path

import pytest
from forks import Forks, Outcome

import arcmask

INSIDE = '''"""Feedback that moves away from the predictions."""

from torch import Tensor

from arcmask.feedback.registry import operator


@operator("outward-bound", label="outward (test)", colour="#0a1b2c", keeps_norm=False, uses_steps=False)
def outward_bound(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move away from the mean of the candidates."""
    mean = (probs.unsqueeze(2) * candidates).sum(dim=1)
    return mask - weight.unsqueeze(1) * (mean - mask)
'''
OUTSIDE = '''import sys

from arcmask.feedback import operator

with open("imports", "a") as file:
    print(sys.argv, file=file)


def pull(mask, candidates, probs, weight):
    """Move towards the first candidate."""
    return mask + weight.unsqueeze(1) * (candidates[:, 0] - mask)


@operator("nudge", label="a nudge (test)", colour="#3d4e5f", keeps_norm=False)
def nudge(mask, candidates, probs, weight):
    """Move a little towards the last candidate."""
    return mask + 0.1 * weight.unsqueeze(1) * (candidates[:, -1] - mask)
'''
TAKEN = """from arcmask.feedback import operator


@operator("linear")
def mine(mask, candidates, probs, weight):
    return mask.expand(len(candidates), -1)
"""
TRAINING = "--init new:tiny --steps 2 --batch_size 2 --micro_batch 2 --warm_up 0 --validate_every 0 --run run"
PLAN = (
    "--arms none spherical-learned --seeds 1 --budgets 2 --samples 2 --steps 2 --batch_size 2 --length 16 "
    "--evaluator none --features none --run plan"
)
SAMPLING = "--num 2 --steps 8 --length 16"
MISSING = (
    "the checkpoint was trained with the operator 'pull', which is not part of arcmask; pass its function again as "
    "FILE.py:FUNCTION"
)


def run(forks: Forks, folder: Path, commands: dict[str, str]) -> dict[str, Outcome]:
    """Run commands one after the other in a folder, each in a process that has only the package's own operators."""
    return {name: forks.run(command.split(), folder) for name, command in commands.items()}


def commands_with(operators: str, corpus: str, base: Path) -> dict[str, str]:
    """Return commands with an operator (the first of the words), in the order of a user's work."""
    operator, likelihood = operators.split()[0], f"--data {corpus} --rows 4"
    return {
        "train": f"train sotu-tiny-linear --operator {operator} --data {corpus} {TRAINING}",
        "sample": f"sample run --feedback {operator} {SAMPLING} --out samples.jsonl",
        "explore": f"explore run --feedback {operators} none --length 16 --steps 4",
        "evaluate": f"evaluate samples.jsonl --evaluator none --operator {operator} --checkpoint run {likelihood}",
        "reproduce": f"reproduce quickstart-long --operators {operators} --base {base} --data {corpus} {PLAN}",
    }


def check_outputs(folder: Path, name: str, label: str, colour: str) -> None:
    """Check that every command's file names the operator, and that every page shows its label and colour."""
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [1, 2]
    stored = json.loads((folder / "run" / "checkpoints" / "step-0000002" / "feedback.json").read_text())
    assert stored["operator"] == name
    assert len((folder / "samples.jsonl").read_text().splitlines()) == 2
    page = (folder / "explore.html").read_text()
    assert label in page
    assert colour in page
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["likelihood"]["two_pass"]["feedback"] == name
    plan = json.loads((folder / "plan" / "plan.json").read_text())
    assert plan["arms"][f"{name}-learned"]["label"] == f"{label}, learned weight"
    report = folder / "plan" / "report"
    assert label in (report / "report.html").read_text()
    assert label in "".join(path.read_text() for path in (report / "figures").glob("*.json"))


@pytest.fixture(scope="module")
def outside(tmp_path_factory, corpus, base, forks):
    """Take two functions of a file through every command, then use the checkpoint without passing the file."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "own.py").write_text(OUTSIDE)
    (folder / "taken.py").write_text(TAKEN)
    operators = "own.py:pull own.py:nudge"
    commands = commands_with(operators, corpus, base) | {
        "resume": f"train sotu-tiny-linear --operator own.py:pull --data {corpus} {TRAINING}",
        "inspect": f"inspect run --operators {operators} --data {corpus} --gain_tokens 64 --only gain --out inspect",
        "report": "report plan --out page",
        "convert": "convert run converted",
        "sample converted": f"sample converted --feedback own.py:pull {SAMPLING}",
        "sample plainly": f"sample run --feedback none {SAMPLING}",
    }
    refused = {
        "sample": f"sample run {SAMPLING}",
        "sample converted": f"sample converted {SAMPLING}",
        "evaluate": f"evaluate --checkpoint run --data {corpus} --rows 4 --out new.json",
        "taken": f"sample run --feedback taken.py:mine {SAMPLING}",
    }
    every = commands | {f"refused {name}": command for name, command in refused.items()}
    return folder, run(forks, folder, every)


@pytest.fixture(scope="module")
def inside(tmp_path_factory, corpus, base):
    """Add one file to a copy of the package, and take it through the commands by its name."""
    folder = tmp_path_factory.mktemp("inside")
    package = folder / "src" / "arcmask"
    shutil.copytree(Path(arcmask.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "feedback" / "operators" / "outward_bound.py").write_text(INSIDE)
    commands = commands_with("outward-bound", corpus, base) | {
        "trained": f"sample run {SAMPLING}",
        "recipe": "train sotu-tiny-outward-bound --print-config",
        "help": "train --help",
        "arms": f"reproduce quickstart-operators --dry-run --base {base} --data {corpus} --length 16",
    }
    forks = Forks(folder / "src")
    results = run(forks, folder, commands)
    forks.close()
    return folder, results


def failures(results: dict[str, Outcome]) -> dict[str, str]:
    return {name: result.stderr for name, result in results.items() if result.code != 0 and "refused" not in name}


def test_every_command_takes_an_operator_from_outside(outside):
    folder, results = outside
    assert failures(results) == {}
    check_outputs(folder, "pull", "pull", "#")
    assert '"pull"' in "".join(path.read_text() for path in (folder / "inspect").glob("*.json"))
    assert "pull" in (folder / "page" / "report.html").read_text()


def test_a_decorated_function_keeps_its_label_and_colour(outside):
    folder, _ = outside
    page = (folder / "explore.html").read_text()
    assert "a nudge (test)" in page
    assert "#3d4e5f" in page
    plan = json.loads((folder / "plan" / "plan.json").read_text())
    assert plan["arms"]["nudge-learned"]["label"] == "a nudge (test), learned weight"
    assert plan["arms"]["nudge-learned"]["colour"] == "#3d4e5f"


def test_a_converted_checkpoint_gives_the_same_samples(outside):
    folder, results = outside
    texts = [json.loads(line)["text"] for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert results["sample converted"].stdout.splitlines() == texts


def test_a_checkpoint_stores_the_name_and_a_hash_and_no_path(outside):
    folder, _ = outside
    stored = json.loads((folder / "converted" / "feedback.json").read_text())
    assert stored["operator"] == "pull"
    assert len(stored["operator_sha256"]) == 64
    assert "own.py" not in json.dumps(stored)


@pytest.mark.parametrize("name", ["sample", "sample converted", "evaluate"])
def test_without_the_file_one_sentence_says_to_pass_it(outside, name):
    result = outside[1][f"refused {name}"]
    assert (result.code, result.stdout, result.stderr) == (2, "", f"arcmask: {MISSING}\n")


def test_only_a_command_that_names_the_file_imports_it(outside):
    """Opening a checkpoint never does."""
    folder, _ = outside
    commands = (folder / "imports").read_text().splitlines()
    assert len(commands) == 8
    assert all("own.py:pull" in command for command in commands)


def test_a_taken_name_is_refused(outside):
    result = outside[1]["refused taken"]
    assert (result.code, result.stderr) == (2, "arcmask: the operator name 'linear' is taken; choose another\n")


def test_one_new_file_in_the_package_reaches_the_commands(inside):
    folder, results = inside
    assert failures(results) == {}
    check_outputs(folder, "outward-bound", "outward (test)", "#0a1b2c")
    inspection = (folder / "plan" / "base" / "inspect" / "sphere.json").read_text()
    assert '"outward-bound"' in inspection


def test_one_new_file_in_the_package_is_a_recipe_an_arm_and_a_choice(inside):
    _, results = inside
    assert "operator: outward-bound" in results["recipe"].stdout
    assert "outward-bound" in results["help"].stdout
    assert "outward-bound-0.3: outward (test), weight 0.3" in results["arms"].stdout
    assert len(results["trained"].stdout.splitlines()) == 2
