"""The example programs run as their first lines say, offline; the pages show what the programs compute."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from arcmask import sphere
from arcmask.feedback import OPERATORS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(forks) -> Callable[..., list[str]]:
    """A function that runs an example, or a command of arcmask, from the root of the repository: its lines."""

    def run(*words: str, module: str = "arcmask") -> list[str]:
        end = forks.run(words, ROOT, module=module)
        assert end.code == 0, end.stderr
        return end.stdout.splitlines()

    return run


def test_there_are_three_short_examples():
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*") if path.is_file()}
    assert set(lengths) == {"bert.py", "own_operator.py", "prompt.py"}
    assert max(lengths.values()) < 50


def test_bert_samples_with_and_without_feedback(run):
    embeddings, plain, fed = run(module="examples/bert.py")
    assert embeddings.startswith("embeddings (1, 4, 64)")
    assert plain.startswith("no feedback [[7, 8, ")
    assert fed.startswith("spherical [[7, 8, ")
    assert plain.removeprefix("no feedback ") != fed.removeprefix("spherical ")
    assert "103" not in plain + fed  # no hole is left


def test_a_prompt_is_kept_and_its_holes_are_filled(run):
    lines = run(module="examples/prompt.py")
    headings, texts = [line for line in lines if line[0] != " "], [line for line in lines if line[0] == " "]
    assert [line.partition(" (")[0] for line in headings] == [
        "Continued, no feedback",
        "Continued, spherical",
        "Filled in, no feedback",
        "Filled in, spherical",
    ]
    assert all(text.startswith("  the people of the united states ") for text in texts[:4])
    assert all(text.startswith("  the congress of the ") for text in texts[4:])
    assert all(text[34:55] == " shall have power to " and len(text) == 67 for text in texts[4:])
    assert texts[:2] != texts[2:4]


def test_an_operator_of_ones_own_runs_as_a_program(run):
    lines = run(module="examples/own_operator.py")
    assert [line.partition(": ")[0] for line in lines] == ["nearest", "half-way (LERP)"]
    assert all(line.partition(": ")[2].startswith("we the people ") for line in lines)


@pytest.mark.parametrize("name", ["nearest", "halfway"])
def test_an_operator_of_ones_own_works_on_the_command_line(name, run):
    words = ["--feedback", f"examples/own_operator.py:{name}", "--length", "24", "--steps", "8"]
    (text,) = run("sample", "sotu-tiny", *words)
    assert len(text) == 24


def test_the_table_of_the_feedback_page_is_what_the_operators_do():
    """On random vectors of the paper's size: the norm along each operator's path, and the angle to the mask."""
    page = (ROOT / "docs" / "feedback.md").read_text()
    weights = (0.0, 0.25, 0.5, 0.75, 1.0)
    draw = torch.Generator().manual_seed(0)
    mask = torch.randn(768, generator=draw, dtype=torch.float64)
    shared = torch.randn(256, 1, 768, generator=draw, dtype=torch.float64)
    candidates = shared + torch.randn(256, 3, 768, generator=draw, dtype=torch.float64)
    candidates = mask.norm() * sphere.unit(candidates + 0.3 * mask)  # all on the mask's shell
    probs = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).expand(256, 3)
    angle = sphere.angle(mask, sphere.frechet_mean(candidates, probs)).rad2deg().mean()
    assert f"{angle:.1f} degrees" in page
    for name, operator in OPERATORS.items():
        path = [
            operator(mask, candidates, probs, torch.full((256,), weight, dtype=torch.float64)) for weight in weights
        ]
        norms = [f"{(points.norm(dim=1) / mask.norm()).mean():.4f}" for points in path]
        angles = [f"{sphere.angle(mask, points).rad2deg().mean():.2f}" for points in path]
        rows = [line.replace("|", " ").replace("`", " ").split() for line in page.splitlines()]
        assert [name, *norms] in rows, (name, norms)
        assert [name, *angles] in rows, (name, angles)


def test_the_results_at_equal_entropy_are_those_of_the_stored_scores(capsys, monkeypatch):
    folder = ROOT / "docs" / "results"
    monkeypatch.setattr(sys, "argv", ["equal_entropy.py", str(folder / "scores.json")])
    runpy.run_path(str(folder / "equal_entropy.py"), run_name="__main__")
    printed = [line for line in capsys.readouterr().out.splitlines() if " minus " in line]
    tables, page = ((folder / name).read_text() for name in ("tables.md", "README.md"))
    assert len(printed) == 18
    for line in printed:
        assert line in tables
    largest = [line.split(" | ")[-1].removesuffix(" |") for line in printed if line.startswith("| 64 ")]
    for perplexity in largest:
        assert perplexity in page.replace("**", "").replace("\u2212", "-")
