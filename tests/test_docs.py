"""The documentation: the site builds without a broken link, and public names have docstrings with examples that run."""

import doctest
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import griffe
import pytest

import arcmask

ROOT = Path(__file__).parents[1]
MODULES = [name for name in arcmask.__all__ if isinstance(getattr(arcmask, name), ModuleType)]


def public_names() -> list[str]:
    """Every name in `arcmask.__all__` and in the `__all__` of its modules, as module.name."""
    names = [f"arcmask.{name}" for name in arcmask.__all__ if name != "__version__"]
    for module in MODULES:
        exported = getattr(getattr(arcmask, module), "__all__", None)
        names += [f"arcmask.{module}.{name}" for name in exported or own_names(getattr(arcmask, module))]
    return names


def own_names(module: ModuleType) -> list[str]:
    """The public functions and classes that a module without `__all__` defines."""
    items = vars(module).items()
    return [name for name, value in items if name[0] != "_" and getattr(value, "__module__", "") == module.__name__]


def find(name: str) -> Any:
    parent, _, last = name.rpartition(".")
    return getattr(import_module(parent), last)


@pytest.fixture(scope="module")
def source() -> Any:
    """The package as its source says, with the docstrings of constants."""
    return griffe.load("arcmask", search_paths=[ROOT / "src"], resolve_aliases=True)


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_a_docstring(name, source):
    value = find(name)
    if inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value):
        assert value.__doc__, name
    else:
        assert source[name.removeprefix("arcmask.")].docstring, name


@pytest.mark.parametrize("name", public_names())
def test_the_examples_in_docstrings_run(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    value = find(name)
    texts = [] if inspect.ismodule(value) else doctest.DocTestFinder(recurse=True).find(value, name, globs={})
    report: list[str] = []
    for example in texts:
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


def test_the_site_builds_strictly_with_search(site):
    assert (site / "index.html").is_file()
    assert "spherical" in (site / "search" / "search_index.json").read_text()


def test_every_public_name_is_in_the_reference(site):
    for module in MODULES:
        page = (site / "reference" / f"{module}.html").read_text()
        for name in getattr(getattr(arcmask, module), "__all__", ()):
            assert re.search(rf'id="arcmask\.{module}\.(\w+\.)?{name}"', page), name


def test_every_local_link_of_the_site_leads_somewhere(site):
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links are absolute
            continue
        for link in re.findall(r'(?:href|src)="([^"#]+)', page.read_text()):
            if not re.match(r"[a-z]+:", link):
                assert (page.parent / unquote(link)).resolve().exists(), (page.name, link)


def test_the_site_loads_nothing_from_the_network(site):
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:[^"]*"', page.read_text()), page
