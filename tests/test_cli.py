"""The command line as a user meets it: a fresh process each time."""

import subprocess
import sys
from importlib.metadata import version

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "arcmask", *arguments], capture_output=True, text=True, check=False)


def test_version():
    result = run("--version")
    assert result.returncode == 0
    assert version("arcmask") in result.stdout


def test_help():
    result = run("--help")
    assert result.returncode == 0
    assert "masked diffusion" in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_torch_is_not_imported_before_it_is_needed(arguments):
    code = (
        f"import sys; sys.argv = ['arcmask', *{arguments!r}]\n"
        "from arcmask.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_an_unknown_option_exits_non_zero():
    result = run("--no-such-option")
    assert result.returncode == 2
    assert "no-such-option" in result.stderr


def test_light_import_offers_its_modules():
    code = (
        "import arcmask, sys; assert 'torch' not in sys.modules; arcmask.feedback.OPERATORS; 'sphere' in dir(arcmask)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
