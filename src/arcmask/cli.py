"""The command line: parse, look names up, call. A command's module, and torch with it, is imported when it runs."""

import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import MISSING
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml
from jsonargparse import Namespace

import arcmask
from arcmask.errors import ArcmaskError, Stopped, check_choice, unknown_name
from arcmask.launch import (
    check_processes,
    count_gpus,
    disconnect,
    end_with_launcher,
    is_launched_here,
    launch,
    lost_connection,
    record_failure,
)
from arcmask.parsing import (
    LONG_TEXT,
    Command,
    HelpFormatter,
    Parser,
    add_settings,
    build_settings,
    refuse_unused,
    report,
    settings_of,
)
from arcmask.progress import announce
from arcmask.ranks import is_launched, planned
from arcmask.recipes import EXPERIMENTS, RECIPES, find_recipe, list_recipes
from arcmask.run_folder import plain_yaml, read_yaml_text
from arcmask.settings.convert import ConvertConfig
from arcmask.settings.evaluate import EvaluateConfig
from arcmask.settings.experiment import ReproduceCommand
from arcmask.settings.explore import ExploreConfig
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.report import ReportConfig
from arcmask.settings.sample import SampleConfig
from arcmask.settings.train import FITTED, TrainCommand
from arcmask.settings.tune import TuneConfig

COMMANDS = {
    "reproduce": Command(
        "carry out an experiment: arms, seeds, budgets, one report",
        ReproduceCommand,
        ("recipe",),
        has_dry_run=True,
        has_processes=True,
    ),
    "prepare": Command(
        "tokenise a corpus into rows that training reads", PrepareConfig, ("corpus", "out"), has_dry_run=True
    ),
    "train": Command(
        "train a model, by a recipe or on your own data, or resume it",
        TrainCommand,
        ("recipe",),
        has_dry_run=True,
        has_processes=True,
    ),
    "tune": Command(
        "fit feedback to a model as it is, without training it", TuneConfig, ("checkpoint",), has_device=True
    ),
    "sample": Command(
        "write text with a checkpoint", SampleConfig, ("checkpoint",), has_device=True, has_processes=True
    ),
    "evaluate": Command(
        "score samples, and a checkpoint's likelihood",
        EvaluateConfig,
        ("samples",),
        has_dry_run=True,
        has_device=True,
        has_processes=True,
    ),
    "inspect": Command(
        "measure what feedback would gain in a checkpoint, and its geometry",
        InspectConfig,
        ("checkpoint",),
        has_device=True,
    ),
    "explore": Command(
        "write a page that shows how a sample forms, step by step", ExploreConfig, ("checkpoint",), has_device=True
    ),
    "report": Command("show the results of runs as one page with tables and figures", ReportConfig, ("runs",)),
    "convert": Command("write a checkpoint in another form", ConvertConfig, ("source", "target")),
}


def build_parser(recipe: str | None = None, init: str | None = None) -> Parser:
    """Build the whole command line. A recipe's settings are the defaults of `train`.

    Its centre and steepness belong to its own start. With another `init` they are fitted to that.
    """
    parser = Parser(
        prog="arcmask",
        description="Predictive feedback for masked diffusion language models, along the sphere of their embeddings.",
        version=arcmask.__version__,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--print-completion", metavar="SHELL", help="print a completion script: bash, zsh or tcsh")
    subcommands = parser.add_subcommands(required=False)
    for name, command in COMMANDS.items():
        recipes = list_recipes(RECIPES if name == "train" else EXPERIMENTS)
        epilog = f"recipes:\n{indent(recipes, '  ')}" if name in ("train", "reproduce") else None
        is_plan = name == "reproduce"  # which prints the plan, and not its options
        subparser = Parser(description=command.summary, epilog=epilog, print_config=None if is_plan else "--print-%s")
        subparser.add_argument("--config", action="config", help="a YAML file with settings; options override it")
        add_settings(subparser, command)
        if name == "train" and recipe is not None:
            defaults = find_recipe(recipe).train.to_dict()
            subparser.set_defaults(defaults if init in (None, defaults["init"]) else defaults | FITTED)
        if is_plan:
            subparser.add_argument("--print-config", action="store_true", help="print the plan as YAML, and do nothing")
        if command.has_device:
            subparser.add_argument("--device", help="cpu, cuda or cuda:N. Default: a GPU if there is one")
        if command.has_processes:
            text = "processes to start on this machine. Default: one per GPU that has work, or 1"
            subparser.add_argument("--processes", type=int, help=text)
        if command.has_dry_run:
            subparser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
        subcommands.add_subcommand(name, subparser, help=command.summary)
        parser.commands[name] = subparser
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, or print the help without one. Bad input is one sentence and exit code 2."""
    end_with_launcher()
    warnings.showwarning = _warn
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell, as with >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  (until the process ends)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unfinished files are removed on the way out
    try:
        try:
            _parse_and_run(sys.argv[1:] if arguments is None else list(arguments))
        except SystemExit:  # after --help
            print(end="", flush=True)
            raise
        disconnect()
        print(end="", flush=True)  # here, and not at exit, where an error can no longer be handled
    except Stopped as stop:
        sys.exit(_end(str(stop), stop.EXIT_CODE))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough, as in `arcmask sample … | head -1`
        _discard_output()
    except (ArcmaskError, OSError, OverflowError, RuntimeError, MemoryError) as error:
        _discard_output()
        sentence = _sentence(error)
        if sentence is None:
            raise
        sys.exit(_end(sentence, 2, is_lost=lost_connection(error)))


def _warn(message: object, *_: object, **__: object) -> None:
    """Print a warning; only in the first of several processes, since all of them have it."""
    if os.environ.get("RANK", "0") == "0":
        report(str(message))


def _end(sentence: str, code: int, is_lost: bool = False) -> int:
    """Print a sentence, here or in the process that has started this one, and return the exit code."""
    if not record_failure(sentence, code, is_lost):
        report(sentence)
    return code


def _parse_and_run(words: list[str]) -> None:
    _check_text("an argument", words)
    is_launched()  # sets the variables of torchrun under srun
    if words in (["train"], ["reproduce"]):
        names, other = (RECIPES, ", or --data and --init") if words == ["train"] else (EXPERIMENTS, "")
        raise ArcmaskError(f"arcmask {words[0]} needs a RECIPE{other}; choose one of: {', '.join(sorted(names))}")
    parser = build_parser(find_recipe_name(words), _find_init(words))
    namespace = parser.parse_args(words)
    if namespace.print_completion is not None:
        _print_completion(parser, namespace.print_completion)
    elif namespace.subcommand is None:
        parser.print_help()
    else:
        given = parser.commands[namespace.subcommand].given(words[1:])
        _run(namespace.subcommand, namespace[namespace.subcommand], words, given)


def _print_completion(parser: Parser, shell: str) -> None:
    """Print a script that completes commands and options in a shell."""
    try:
        import shtab
    except ImportError as error:
        raise ArcmaskError("completion needs shtab; pip install 'arcmask[completion]' brings it") from error
    check_choice("shell", shell, shtab.SUPPORTED_SHELLS)
    for command in parser.commands.values():
        for action in command._actions:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))


def find_recipe_name(words: Sequence[str]) -> str | None:
    """Return the recipe of a `train` command line, wherever it stands, or that of its settings file, or None."""
    if words[:1] != ["train"] or len(words) < 2:
        return None
    for before, word in pairwise(words):
        is_value = before.startswith("-") and "=" not in before and before not in ("--dry-run", "--print-config")
        if word in RECIPES and not is_value:
            return word
    if not words[1].startswith("-"):
        return words[1]
    for before, word in pairwise(words):
        if before == "--config" or word.startswith("--config="):
            settings = yaml.safe_load(read_yaml_text(Path(word.removeprefix("--config="))) or "{}")
            return None if settings.get("recipe") is None else str(settings["recipe"])
    return None


def _find_init(words: Sequence[str]) -> str | None:
    """Return the value of the last --init in a command line, or None."""
    values = [after for word, after in pairwise([*words, ""]) if word == "--init"]
    values += [word.removeprefix("--init=") for word in words if word.startswith("--init=")]
    return values[-1] if values else None


def _check_text(kind: str, values: Sequence[object]) -> None:
    """Raise for text that cannot be a path or be written to a file: with a NUL, or not valid Unicode."""
    for text in values:
        if isinstance(text, str) and re.search("[\0\ud800-\udfff]", text):
            raise ArcmaskError(f"{kind} is {text!r}, which has a NUL character or is not valid UTF-8")
        if isinstance(text, str) and (len(text) > LONG_TEXT or ("&" in text and "*" in text)):
            with suppress(yaml.YAMLError):  # not YAML is fine, but nested YAML can crash its parser
                plain_yaml(text)


def _sentence(error: Exception) -> str | None:
    """Say in a sentence what is wrong with the input, or why the system refused; None for an error of the program."""
    if isinstance(error, ArcmaskError):
        return str(error)
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, OverflowError):
        return f"a number is too large ({error})"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if lost_connection(error):
        reason = str(error).partition("\n")[0]
        return f"another process of this command has ended or cannot be reached ({reason})"
    # torch has no type of its own for memory that a CPU does not have.
    if isinstance(error, MemoryError) or re.search("allocate|out of memory", str(error)):
        return "there is not enough memory for these settings"
    return None if isinstance(error, RuntimeError) else str(error)


def _discard_output() -> None:
    """Send what is left of standard output nowhere if it cannot be written, so that exiting does not fail on it."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(name: str, namespace: Namespace, words: list[str], given: set[str]) -> None:
    command = COMMANDS[name]
    values = vars(namespace)
    for setting, value in values.items():
        _check_text(setting, value if isinstance(value, list) else [value])
    needed = {setting.name for _, setting in settings_of(command.settings) if setting.default is MISSING}
    missing = [word.upper() for word in command.positional if word in needed and values.get(word) is None]
    if missing:
        raise ArcmaskError(f"arcmask {name} needs {' and '.join(missing)}; arcmask {name} --help says more")
    config = build_settings(command.settings, values)
    refuse_unused(config, given)
    if name == "reproduce" and namespace.print_config:
        import_module(f"arcmask.commands.{name}").print_config(config)
        return
    is_dry = command.has_dry_run and namespace.dry_run
    processes = _count_processes(name, namespace, config) if command.has_processes else None
    if processes is not None and processes > 1 and not is_dry:
        code, sentence = launch(words, processes)
        sys.exit(code if sentence is None else _end(sentence, code))
    with _on_device(namespace.device) if command.has_device else nullcontext():
        module = import_module(f"arcmask.commands.{name}")
        if is_dry:
            with nullcontext() if processes is None else planned(processes):
                module.dry_run(config)
        else:
            module.run(config)


def _count_processes(name: str, namespace: Namespace, config: Any) -> int | None:
    """Return how many processes a command starts, or would start; None if a launcher has started them."""
    if is_launched_here() or (is_launched() and namespace.processes is None):
        return None
    count, device = namespace.processes, getattr(namespace, "device", None)
    if count is None and device not in (None, "cuda"):
        return 1
    if device == "cpu" or getattr(namespace, "card", None) is not None:  # of another machine, in a dry run
        gpus = 0
    else:
        gpus = 1 if device not in (None, "cuda") else count_gpus()
    if count is not None:
        check_processes(count, gpus)
    if 1 in (count, gpus) or (count is None and gpus == 0):
        return 1
    most = gpus if count is None else count
    fitting, reason = import_module(f"arcmask.commands.{name}").most_processes(config, most)
    if fitting < most and count is not None:
        raise ArcmaskError(f"--processes is {count}, but {reason}")
    if fitting < most:
        announce(f"{fitting} of {gpus} GPUs {'is' if fitting == 1 else 'are'} used, because {reason}")
    return fitting


def _on_device(name: str | None) -> AbstractContextManager[None]:
    """Return the context in which models are loaded onto a device; by default onto a GPU if there is one."""
    if name is None:
        return nullcontext()
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", name):
        raise unknown_name("device", name, ("cpu", "cuda", "cuda:N"))
    return import_module("arcmask.model.denoiser").on_device(name)
