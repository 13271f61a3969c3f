"""The command line: parse, look names up, call. A command's module, and torch with it, is imported when it runs."""

import io
import os
import re
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

import yaml
from docstring_parser import parse as parse_docstring
from jsonargparse import SUPPRESS, ArgumentParser, Namespace

import arcmask
from arcmask.errors import ArcmaskError, Stopped, printable
from arcmask.recipes import EXPERIMENTS, RECIPES, find_recipe
from arcmask.run_folder import plain_yaml, read_yaml_text
from arcmask.settings.convert import ConvertConfig
from arcmask.settings.evaluate import EvaluateConfig
from arcmask.settings.experiment import ReproduceCommand
from arcmask.settings.explore import ExploreConfig
from arcmask.settings.inspect import InspectConfig
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.report import ReportConfig
from arcmask.settings.sample import SampleConfig
from arcmask.settings.train import TrainCommand
from arcmask.settings.tune import TuneConfig


@dataclass(frozen=True)
class Command:
    """A subcommand: its summary, its settings, and which of them are positional. Its module is commands/NAME.py."""

    summary: str
    settings: type
    positional: tuple[str, ...]
    has_dry_run: bool = False


COMMANDS = {
    "reproduce": Command(
        "carry out an experiment: arms, seeds, budgets, one report", ReproduceCommand, ("recipe",), has_dry_run=True
    ),
    "prepare": Command(
        "tokenise a corpus into rows that training reads", PrepareConfig, ("corpus", "out"), has_dry_run=True
    ),
    "train": Command("train a model by a recipe, or resume it", TrainCommand, ("recipe",), has_dry_run=True),
    "tune": Command("fit feedback to a model as it is, without training it", TuneConfig, ("checkpoint",)),
    "sample": Command("write text with a checkpoint", SampleConfig, ("checkpoint",)),
    "evaluate": Command("score samples, and a checkpoint's likelihood", EvaluateConfig, ("samples",), has_dry_run=True),
    "inspect": Command("measure the geometry of a checkpoint", InspectConfig, ("checkpoint",)),
    "explore": Command("write a page that shows how a sample forms, step by step", ExploreConfig, ("checkpoint",)),
    "report": Command("show the results of runs as one page with tables and figures", ReportConfig, ("runs",)),
    "convert": Command("write a checkpoint in another form", ConvertConfig, ("source", "target")),
}


_LONG_TEXT = 2000


class Parser(ArgumentParser):
    """A parser that reads settings files by the rules of `run_folder`, and reports an error as one sentence."""

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        return self.parse_string(read_yaml_text(Path(path)) or "{}", "", *args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        words = re.sub(r'Parser key "(.+?)":', r"--\1:", " ".join(message.split())).replace("typing.", "")
        words = re.sub(r"<class '(\w+)'>", r"\1", words)
        words = re.sub(r"(?<=required: ).*", lambda names: re.sub(r"\w+\.(\w+)", r"--\1", names[0]), words)
        union = re.match(r"(--\S+:).*?Subtypes: \[(.*?)\].*?[Vv]alue: (\S+)", words)
        if union:
            kinds = [kind for kind in union[2].split(", ") if kind != "NoneType"]
            words = f"{union[1]} Expected a {' or '.join(kinds)}. Got value: {union[3]}"
        sys.exit(_report(words))


def settings_of(kind: type, leave_out: Sequence[str] = ()) -> Iterator[tuple[type, Field[Any]]]:
    """Yield every setting of a dataclass with the class that it belongs to; settings that are held come flat.

    A class's own setting replaces one of the same name in a dataclass that it holds.
    """
    own = [setting for setting in fields(kind) if not is_dataclass(setting.type)]
    for setting in fields(kind):
        if setting in own and setting.name not in leave_out:
            yield kind, setting
        elif isinstance(setting.type, type) and setting not in own:
            hidden = (*leave_out, *(one.name for one in own), *setting.metadata.get("leave_out", ()))
            yield from settings_of(setting.type, hidden)


def build_settings(kind: type, values: dict[str, Any]) -> Any:
    """Build a dataclass, and those that it holds, from flat values."""
    arguments = {}
    for setting in fields(kind):
        if isinstance(setting.type, type) and is_dataclass(setting.type):
            hidden = {one.name for one in fields(kind)} | set(setting.metadata.get("leave_out", ()))
            rest = {name: value for name, value in values.items() if name not in hidden}
            arguments[setting.name] = build_settings(setting.type, rest)
        elif setting.name in values:
            value = values[setting.name]
            arguments[setting.name] = tuple(value) if isinstance(value, list) else value
    return kind(**arguments)


def _element_type(setting: Field[Any]) -> type | None:
    """Return X for a setting of type tuple[X, ...] or tuple[X, ...] | None, and None for any other."""
    options = get_args(setting.type) if isinstance(setting.type, types.UnionType) else (setting.type,)
    for option in options:
        if get_origin(option) is tuple and get_args(option)[1:] == (...,):
            return get_args(option)[0]
    return None


def _add_settings(parser: Parser, command: Command) -> None:
    """Add an argument for each setting: positional ones, lists and flags by hand, all others by their types."""
    settings = list(settings_of(command.settings))
    classes = [command.settings, *dict.fromkeys(kind for kind, _ in settings if kind is not command.settings)]
    help_texts: dict[str, str | None] = {}
    for kind in reversed(classes):
        help_texts |= {text.arg_name: text.description for text in parse_docstring(kind.__doc__ or "").params}
    by_type: dict[type, set[str]] = {kind: {one.name for one in fields(kind)} for kind in classes}
    for kind, setting in settings:
        name, element, text = setting.name, _element_type(setting), help_texts.get(setting.name)
        if name in command.positional:
            # Suppressed, so that an argument that is left out does not hide what a file says.
            count = "?" if element is None else "*"
            parser.add_argument(name, nargs=count, type=str, metavar=name.upper(), default=SUPPRESS, help=text)
        elif setting.metadata.get("flag"):
            parser.add_argument(f"--{name}", action="store_true", help=text)
        elif element is not None:
            default = list(setting.default) if isinstance(setting.default, tuple) else None
            parser.add_argument(f"--{name}", nargs="*", type=element, default=default, help=text)
        else:
            by_type[kind].discard(name)
    for kind, skip in by_type.items():
        parser.add_class_arguments(kind, as_group=False, skip=skip)
    for action in parser._actions:
        action.help = help_texts.get(action.dest) or action.help


def build_parser(recipe: str | None = None) -> Parser:
    """Build the whole command line. A recipe's settings are the defaults of `train`."""
    parser = Parser(
        prog="arcmask",
        description="Predictive feedback for masked diffusion language models, along the sphere of their embeddings.",
        version=arcmask.__version__,
    )
    subcommands = parser.add_subcommands(required=False)
    for name, command in COMMANDS.items():
        subparser = Parser(description=command.summary, print_config="--print-%s")
        subparser.add_argument("--config", action="config", help="a YAML file with settings; options override it")
        _add_settings(subparser, command)
        if name == "train" and recipe is not None:
            subparser.set_defaults(asdict(find_recipe(recipe).train))
        if command.has_dry_run:
            subparser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
        subcommands.add_subcommand(name, subparser, help=command.summary)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, or print the help without one. Bad input is one sentence and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: _report(str(message))  # type: ignore[assignment]
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell, as with >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            _parse_and_run(sys.argv[1:] if arguments is None else list(arguments))
        except SystemExit:  # after --help
            print(end="", flush=True)
            raise
        print(end="", flush=True)  # here, and not at exit, where an error can no longer be handled
    except Stopped as stop:
        _report(str(stop))
        sys.exit(stop.EXIT_CODE)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough, as in `arcmask sample … | head -1`
        _discard_output()
    except (ArcmaskError, OSError, RuntimeError, MemoryError) as error:
        _discard_output()
        sentence = _sentence(error)
        if sentence is None:
            raise
        sys.exit(_report(sentence))


def _parse_and_run(words: list[str]) -> None:
    _check_text("an argument", words)
    if words in (["train"], ["reproduce"]):
        names = RECIPES if words == ["train"] else EXPERIMENTS
        raise ArcmaskError(f"arcmask {words[0]} needs a RECIPE; choose one of: {', '.join(sorted(names))}")
    recipe = words[1] if words[:1] == ["train"] and len(words) > 1 and not words[1].startswith("-") else None
    parser = build_parser(recipe)
    namespace = parser.parse_args(words)
    if namespace.subcommand is None:
        parser.print_help()
    else:
        _run(namespace.subcommand, namespace[namespace.subcommand])


def _check_text(kind: str, values: Sequence[object]) -> None:
    """Raise for text that cannot be a path or be written to a file: with a NUL, or not valid Unicode."""
    for text in values:
        if isinstance(text, str) and re.search("[\0\ud800-\udfff]", text):
            raise ArcmaskError(f"{kind} is {text!r}, which has a NUL character or is not valid UTF-8")
        if isinstance(text, str) and (len(text) > _LONG_TEXT or ("&" in text and "*" in text)):
            with suppress(yaml.YAMLError):  # not YAML is fine, but nested YAML can crash its parser
                plain_yaml(text)


def _sentence(error: Exception) -> str | None:
    """Say in a sentence what is wrong with the input, or why the system refused; None for an error of the program."""
    if isinstance(error, ArcmaskError):
        return str(error)
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
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


def _run(name: str, namespace: Namespace) -> None:
    command = COMMANDS[name]
    values = vars(namespace)
    for setting, value in values.items():
        _check_text(setting, value if isinstance(value, list) else [value])
    needed = {setting.name for _, setting in settings_of(command.settings) if setting.default is MISSING}
    missing = [word.upper() for word in command.positional if word in needed and values.get(word) is None]
    if missing:
        raise ArcmaskError(f"arcmask {name} needs {' and '.join(missing)}; arcmask {name} --help says more")
    config = build_settings(command.settings, values)
    module = import_module(f"arcmask.commands.{name}")
    if command.has_dry_run and namespace.dry_run:
        module.dry_run(config)
    else:
        module.run(config)


def _report(message: str) -> int:
    if len(message) > _LONG_TEXT:
        message = f"{message[: _LONG_TEXT // 2]} … {message[-_LONG_TEXT // 2 :]}"
    print(f"arcmask: {printable(message)}", file=sys.stderr)
    return 2
