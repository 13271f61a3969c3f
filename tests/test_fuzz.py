"""Random command lines over all commands: each ends with an exit code that is promised, quickly and in one sentence.

A command line is a cheap valid one in which a few settings get valid, extreme, wrong or odd values. It depends on its
number alone: `pytest tests/test_fuzz.py -k "[17]"` runs one again.
"""

import contextlib
import io
import random
import shutil
import signal
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from warnings import catch_warnings, simplefilter

import pytest
from made_up import ARMS, make_experiment

from arcmask.cli import COMMANDS, main
from arcmask.files import hash_file
from arcmask.parsing import settings_of

QUICK, ALL = 60, 500
SECONDS = 20
EXIT_CODES = {0, 2, 75, 130}

# Cheap and valid. Values in capitals are files of the `material` fixture.
BASES = {
    "reproduce": "reproduce quickstart --arms none --seeds 1 --budgets 2 --samples 1 --steps 1 --batch_size 2 "
    "--base MODEL --data DATA --length 8 --evaluator none --features none --run run",
    "prepare": "prepare TEXT out --tokenizer text8 --length 8",
    "train": "train sotu-tiny-spherical --data DATA --init MODEL --steps 1 --batch_size 2 --micro_batch 2 "
    "--validate_every 0 --run run",
    "sample": "sample MODEL --num 1 --length 8 --steps 1",
    "evaluate": "evaluate SAMPLES --evaluator none --tokenizer text8",
    "inspect": "inspect MODEL --data DATA --only norms --out out",
    "explore": "explore MODEL --length 8 --steps 1 --feedback none",
    "report": "report RUNS --out out",
    "convert": "convert MODEL out",
    "tune": "tune MODEL --data DATA --out out --rows 4 --held_out_rows 2",
}
SKIPPED = {"compile_blocks", "open"}  # they take minutes, or open a browser
INTEGERS = ["0", "1", "2", "-1", "10000000000000", "-9" + "0" * 30, "9" * 5000, str(2**63), str(2**64)]
FLOATS = ["0", "-1", "0.5", "1", "1.5", "nan", "inf", "-inf", "1e308", "1e-308", "-.inf", ".nan", "1e99999999"]
WRONG = [
    "",
    "abc",
    "[1]",
    "{a: 1}",
    "null",
    "true",
    "1:2",
    "0x10",
    "1_0",
    "[",
    "[" * 3000,
    "!!python/none",
    "*a",
    "&a [*a]",
]
TEXTS = ["", " ", "-", "--", "-1", "[/b]", "$\\foo{$", "../..", "x" * 300, "x" * 5000, "a/" * 3000, "a\0b", "\ud800",
         "\udcff.ckpt", "\x1b[2J", "[MASK]", "{{x}}", "%s%n", "~", "~nobody/x", "hub:", "hub:a/b/c", "new:", "new:huge",
         "new:tiny", "bpe:300", "bpe:99999999999", "bpe:" + "9" * 5000, "every:" + "9" * 5000, "last:1", "none",
         "no.py:f", "TEXT:f", ":", "a b", "\u202e", "\n", "1/0", "1/3", "1e99999999", "/proc/none/x", "/dev/null",
         "/dev/null/x", "/dev/full", "MODEL", "DATA", "TEXT", "SAMPLES", "RUNS", "BINARY", "EMPTY", "NESTED",
         "missing"]  # fmt: skip
CONFIGS = ["BINARY", "NESTED", "BOMB", "EMPTY", "TEXT", "SAMPLES", "missing", "x" * 5000, "", "SETTINGS", "/dev/zero"]
EXTRAS = [["--help"], ["--print-config"], ["--dry-run"], ["--no-such", "1"], ["stray"], ["--"]]


@pytest.fixture(scope="session")
def material(corpus, base, tmp_path_factory) -> Path:
    """Make a folder with a model, prepared data, texts, samples, a run, and files that are no good."""
    folder = tmp_path_factory.mktemp("material")
    shutil.copytree(base, folder / "MODEL")
    shutil.copytree(corpus, folder / "DATA")
    make_experiment(
        folder / "RUNS", arms={name: ARMS[name] for name in ("none", "linear")}, seeds=(1, 2), budgets=(16,)
    )
    (folder / "TEXT").write_text("the cat sat on a mat and ran off\n" * 40)
    (folder / "SAMPLES").write_text("".join(f'{{"index": {i}, "text": "the cat {i}"}}\n' for i in range(3)))
    (folder / "BINARY").write_bytes(random.Random(0).randbytes(2000))
    (folder / "EMPTY").mkdir()
    (folder / "NESTED").write_text("[" * 100_000)
    (folder / "SETTINGS").write_text("seed: 3\n")
    (folder / "BOMB").write_text("a: &a [x, x]\n" + "".join(f"b{i}: &a [*a, *a]\n" for i in range(40)))
    return folder


def value_of(kind: Any, draw: random.Random) -> str:
    """Draw a value for a setting of that type: mostly of the type, sometimes of another."""
    if draw.random() < 0.15:
        return draw.choice(WRONG + TEXTS)
    options = [option for option in get_args(kind) if option is not types.NoneType]
    if get_origin(kind) is Literal:
        return draw.choice([*options, "abc", ""])
    if options:  # a union, or a tuple of one type
        return value_of(options[0], draw)
    return draw.choice({int: INTEGERS, float: FLOATS, bool: ["true", "false", "maybe"]}.get(kind, TEXTS))


def command_line(number: int) -> list[str]:
    """Return the words of a command line."""
    draw = random.Random(number)
    name = list(BASES)[number % len(BASES)]
    words, command = BASES[name].split(), COMMANDS[name]
    settings = [setting for _, setting in settings_of(command.settings) if setting.name not in SKIPPED]
    for setting in draw.sample(settings, min(len(settings), draw.choice([0, 1, 1, 1, 2, 3]))):
        if setting.name in command.positional:
            words[1 + command.positional.index(setting.name)] = value_of(setting.type, draw)
            continue
        count = 0 if setting.metadata.get("flag") else draw.choice([0, 1, 2]) if "tuple" in str(setting.type) else 1
        if f"--{setting.name}" in words:
            position = words.index(f"--{setting.name}")
            del words[position : position + 2]
        words += [f"--{setting.name}", *(value_of(setting.type, draw) for _ in range(count))]
    if draw.random() < 0.1:
        words += ["--config", draw.choice(CONFIGS)]
    if draw.random() < 0.1:
        words += draw.choice(EXTRAS)
    if draw.random() < 0.05:
        words.pop(draw.randrange(len(words)))
    return words


class TimeIsUp(BaseException):
    """Not an Exception, so that nothing but the test handles it."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command line in this process; return its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), time_limit(SECONDS), catch_warnings():
        simplefilter("default")
        try:
            main(words)
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return code, out.getvalue(), err.getvalue()


def snapshot(folder: Path) -> dict[str, str]:
    """Return the hash of every file, without locks, which have no content of their own."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hash_file(path).hexdigest() for path in files if path.suffix != ".lock"}


def check(number: int, material: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command line in a copy of the material, two folders deep, and check what it leaves; return its code."""
    home = folder / "a" / "b"
    shutil.copytree(material, home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("ARCMASK_CACHE", str(folder / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    before, began, words = snapshot(home), time.monotonic(), command_line(number)
    code, out, err = run(words)
    assert code in EXIT_CODES, (words, err)
    assert "Traceback" not in out + err, (words, err)
    assert time.monotonic() - began < SECONDS, words
    if code == 2:
        assert err.startswith("arcmask: "), (words, err)
        assert snapshot(home) == before, (words, err)
    return code


@pytest.mark.parametrize(
    "number", [*range(QUICK), *(pytest.param(number, marks=pytest.mark.slow) for number in range(QUICK, ALL))]
)
def test_a_random_command_line_ends_as_promised(number, material, tmp_path, monkeypatch, record_property):
    record_property("exit_code", check(number, material, tmp_path, monkeypatch))


def test_every_command_is_tried():
    assert set(BASES) == set(COMMANDS)
