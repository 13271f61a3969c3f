"""The command line as a user meets it: a fresh process each time."""

import resource
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from models import small_mdlm

from arcmask.checkpoint import load, save


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


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["explore", "--help"]])
def test_torch_is_not_imported_before_it_is_needed(arguments):
    code = (
        f"import sys; sys.argv = ['arcmask', *{arguments!r}]\n"
        "from arcmask.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["reproduce", "--help"]])
def test_help_answers_in_under_a_second(arguments):
    """Of processor time, so that a busy machine does not matter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*arguments).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 1


def test_an_unknown_option_exits_non_zero():
    result = run("--no-such-option")
    assert result.returncode == 2
    assert "no-such-option" in result.stderr


def test_light_import_offers_its_modules():
    code = (
        "import arcmask, sys; assert 'torch' not in sys.modules; arcmask.feedback.OPERATORS; 'sphere' in dir(arcmask)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_command_without_its_arguments_says_what_is_missing():
    result = run("convert")
    assert result.returncode == 2
    assert result.stderr == "arcmask: arcmask convert needs SOURCE and TARGET; arcmask convert --help says more\n"


def test_bad_input_is_one_sentence(tmp_path):
    for arguments, sentence in (
        (["convert", str(tmp_path / "no.ckpt"), "out"], f"arcmask: there is no file {tmp_path / 'no.ckpt'}\n"),
        (
            ["convert", "a", "b", "--weights", "x"],
            "arcmask: --weights: Expected a Literal['ema', 'raw']. Got value: x\n",
        ),
    ):
        result = run(*arguments)
        assert (result.returncode, result.stderr, result.stdout) == (2, sentence, "")


def test_settings_come_from_a_file_and_options_go_over_it(tmp_path):
    (tmp_path / "settings.yaml").write_text("source: here\ntarget: there\nweights: raw\n")
    from_file = run("convert", "--config", str(tmp_path / "settings.yaml"), "--print-config")
    assert "weights: raw" in from_file.stdout
    assert "source: here" in from_file.stdout
    over = run("convert", "--config", str(tmp_path / "settings.yaml"), "--weights", "ema", "--print-config")
    assert "weights: ema" in over.stdout


def test_convert_prints_what_it_wrote(tmp_path):
    save(small_mdlm(), tmp_path / "in")
    result = run("convert", str(tmp_path / "in"), str(tmp_path / "out.ckpt"))
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{tmp_path / 'out.ckpt'}\n"
    assert torch.equal(load(tmp_path / "out.ckpt").table, small_mdlm().table)
