"""The README and the pages are true: commands parse, links lead somewhere, and examples run."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
from models import some_tokens
from transformers import BertConfig, BertForMaskedLM

from arcmask.cli import build_parser, find_recipe_name
from arcmask.recipes import find_experiment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


def command_lines() -> list[str]:
    """Every `arcmask` command on the pages, without its comment and without torchrun."""
    shown = [line for page in PAGES for block in blocks("bash", page.read_text()) for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in shown]
    return sorted({shlex.join(words[words.index("arcmask") + 1 :]) for words in commands if "arcmask" in words})


parser = cache(build_parser)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_on_the_pages_parses(line):
    words = [word for word in shlex.split(line) if word != "--print-config"]  # it exits
    namespace = parser(find_recipe_name(words)).parse_args(words)
    assert namespace.subcommand == words[0]


def test_the_readme_reaches_its_first_table_within_two_screens():
    assert README.splitlines().index("|---|---|---|") <= 92


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "index.md"], ids=lambda page: page.name)
def test_every_page_says_first_what_to_type(page):
    start, *sections = page.read_text().split("\n## ")
    beginning = start + sections[0] if page.name == "README.md" else start
    assert "```bash" in beginning or "```python" in beginning


def test_the_demo_is_the_quickstart_experiment():
    makefile = (ROOT / "Makefile").read_text()
    assert "arcmask reproduce quickstart\n" in makefile
    for arm in find_experiment("quickstart").arms.values():
        assert arm.label in " ".join(README.split())


def test_every_make_target_that_is_mentioned_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"^make ([a-z-]+)", page.read_text(), flags=re.MULTILINE)) <= targets, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_the_package_on_a_page_exists(page):
    names = re.findall(r"`(arcmask(?:\.[A-Za-z_]\w*)+)", page.read_text())
    for node in ast.walk(ast.parse("\n".join(blocks("python", page.read_text())))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("arcmask"):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        resolve_name(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_the_python_example_runs_as_written():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=23, **sizes)).eval()
    names = {"model": model, "mask_id": 22, "tokens": some_tokens(), "rows": some_tokens().clamp(max=21)}
    exec(blocks("python")[0], names)
    assert names["logits"].shape == (*some_tokens().shape, 23)
