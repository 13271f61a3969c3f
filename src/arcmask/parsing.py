"""Build an argument parser from dataclasses of settings, and build the settings from what it parsed."""

import re
import sys
import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

import yaml
from docstring_parser import parse as parse_docstring
from jsonargparse import SUPPRESS, ArgumentParser, DefaultHelpFormatter, Namespace

from arcmask.errors import ArcmaskError, did_you_mean, printable, unknown_name
from arcmask.run_folder import read_yaml_text

LONG_TEXT = 2000  # characters of an argument or a message


@dataclass(frozen=True)
class Command:
    """A subcommand: its summary, its settings, and which of them are positional. Its module is commands/NAME.py."""

    summary: str
    settings: type
    positional: tuple[str, ...]
    has_dry_run: bool = False
    has_device: bool = False
    has_processes: bool = False  # whether it can be shared by several; its module says how many with most_processes


def report(message: str) -> int:
    """Print a message to standard error, and return the exit code of bad input."""
    if len(message) > LONG_TEXT:
        message = f"{message[: LONG_TEXT // 2]} … {message[-LONG_TEXT // 2 :]}"
    print(f"arcmask: {printable(message)}", file=sys.stderr)
    return 2


class HelpFormatter(DefaultHelpFormatter):
    """Keep the lines of a text that has several, such as a list of names."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(ArgumentParser):
    """A parser that reads settings files by the rules of `run_folder`, and reports an error as one sentence."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands: dict[str, Parser] = {}
        self.lists: set[str] = set()  # the options that take several words

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any) -> Namespace:  # type: ignore[override]
        words = sys.argv[1:] if args is None else list(args)
        if words and words[0] in self.commands:
            words = [words[0], *self.commands[words[0]].spell(words[1:])]
        elif self.commands and words and not words[0].startswith("-"):
            raise unknown_name("command", words[0], self.commands)
        return super().parse_args(words, *more, **kwargs)

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        text = read_yaml_text(Path(path)) or "{}"
        if isinstance(yaml.safe_load(text).get("arms"), dict):  # a whole plan, and not options of a recipe
            text = yaml.safe_dump({"recipe": str(path)})
        return self.parse_string(text, "", *args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        words = re.sub(r'Parser key "(.+?)"(?: element \d+)?:', r"--\1:", " ".join(message.split()))
        words = words.replace("typing.", "")
        words = re.sub(r"<class '(\w+)'>", r"\1", words)
        words = re.sub(r"(?<=required: ).*", lambda names: re.sub(r"\w+\.(\w+)", r"--\1", names[0]), words)
        union = re.match(r"(--\S+:).*?Subtypes: \[((?:[^][]|\[.*?\])*)\].*?[Vv]alue: (\S+)", words)
        if union:
            choices = re.sub(r"Literal\['(\w+)'\]", r"\1", union[2])
            kinds = [kind for kind in re.findall(r"\w+\[.*?\]|\w+", choices) if kind != "NoneType"]
            words = f"{union[1]} Expected a {' or '.join(kinds)}. Got value: {union[3]}"
        if literal := re.match(r"(--\S+): Expected a Literal\[(.*?)\].*\. Got value: (\S+)", words):
            words = str(unknown_name(literal[1], literal[3], re.findall(r"'(.*?)'", literal[2])))
        if option := re.match(r"[Uu]nrecognized arguments:.*?(--[\w-]+)", words):
            words += f";{hint}" if (hint := self._hint(option[1])) else ""
        sys.exit(report(words))

    def _hint(self, option: str) -> str:
        """Return what to type in place of an option that does not exist, or nothing."""
        positional = [str(action.metavar) for action in self._get_positional_actions()]
        if option.removeprefix("--").upper() in positional:
            return f" it is given without {option}, as in: arcmask {self.prog.split()[-1]} {' '.join(positional)}"
        return did_you_mean(option, self._option_string_actions)

    def spell(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command as this parser spells them: --text-key as --text_key, and a list as words.

        A list can also be written with commas, as in 1,2,3 or [0.2,0.8].
        """
        spelling = {_with_underscores(option): option for option in self._option_string_actions}
        spelled: list[str] = []
        is_list = False
        for word in words:
            name, equals, value = word.partition("=")
            if not name.startswith("--"):
                spelled += _split_list(word) if is_list else [word]
                continue
            name = spelling.get(_with_underscores(name), name)
            is_list = name in self.lists
            parts = _split_list(value) if is_list else [value]
            spelled += [name, *parts] if len(parts) > 1 else [f"{name}{equals}{value}"]
        return spelled

    def given(self, words: Sequence[str]) -> set[str]:
        """Return the names of the options that are among the words of a command."""
        options = {word.partition("=")[0] for word in self.spell(words)} & set(self._option_string_actions)
        return {_with_underscores(option).removeprefix("--") for option in options}


def _with_underscores(option: str) -> str:
    return "--" + option.removeprefix("--").replace("-", "_")


def _split_list(word: str) -> list[str]:
    """Return the items of a word such as a,b or [1, 2]; a path or FILE.py:FUNCTION is one item."""
    items = re.fullmatch(r"(\[?)\s*([\w.+-]+(?:\s*,\s*[\w.+-]+)+)\s*(\]?)", word)
    return re.split(r"\s*,\s*", items[2]) if items and len(items[1]) == len(items[3]) else [word]


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
            if value is None and types.NoneType not in get_args(setting.type):
                raise ArcmaskError(f"{setting.name} has no value, but needs one")
            arguments[setting.name] = tuple(value) if isinstance(value, list) else value
    return kind(**arguments)


def refuse_unused(config: Any, given: Collection[str]) -> None:
    """Raise if a setting that was given has no effect beside the others, unless it switches off what is off anyway.

    `unused` of a dataclass of settings returns the settings that have none, each with the reason.
    """
    defaults = {setting.name: setting.default for _, setting in settings_of(type(config))}
    parts = (config, *(getattr(config, one.name) for one in fields(config) if is_dataclass(one.type)))
    values = {one.name: getattr(part, one.name) for part in reversed(parts) for one in fields(part)}
    for part in parts:
        reasons: dict[str, str] = getattr(part, "unused", dict)()
        operator = getattr(part, "operator", None)
        if "karcher_steps" in given and operator is not None and hasattr(part, "karcher_steps"):
            from arcmask.feedback import find_operator

            if not find_operator(operator).uses_steps:
                reasons["karcher_steps"] = f"the operator {operator} has no Karcher steps"
        for name in sorted(reasons.keys() & set(given)):
            if values[name] not in (None, False, "none", defaults[name]):
                raise ArcmaskError(f"{name} has no effect, since {reasons[name]}; leave it out")


def _list_type(setting: Field[Any]) -> tuple[type, int | str] | None:
    """Return the type of the items and their number, "*" for any, of a setting that is a tuple; None for any other."""
    options = get_args(setting.type) if isinstance(setting.type, types.UnionType) else (setting.type,)
    for option in options:
        if get_origin(option) is tuple:
            item, *others = get_args(option)
            return item, "*" if others == [...] else 1 + len(others)
    return None


def add_settings(parser: Parser, command: Command) -> None:
    """Add an argument for each setting: positional ones, lists and flags by hand, all others by their types."""
    settings = list(settings_of(command.settings))
    classes = [command.settings, *dict.fromkeys(kind for kind, _ in settings if kind is not command.settings)]
    help_texts: dict[str, str | None] = {}
    for kind in reversed(classes):
        help_texts |= {text.arg_name: text.description for text in parse_docstring(kind.__doc__ or "").params}
    by_type: dict[type, set[str]] = {kind: {one.name for one in fields(kind)} for kind in classes}
    for kind, setting in settings:
        name, items, text = setting.name, _list_type(setting), help_texts.get(setting.name)
        if name in command.positional:
            # Suppressed, so that an argument that is left out does not hide what a file says.
            count = "?" if items is None else "*"
            parser.add_argument(name, nargs=count, type=str, metavar=name.upper(), default=SUPPRESS, help=text)
        elif setting.metadata.get("flag"):
            parser.add_argument(f"--{name}", action="store_true", help=text)
        elif items is not None:
            default = list(setting.default) if isinstance(setting.default, tuple) else None
            parser.add_argument(f"--{name}", nargs=items[1], type=items[0], default=default, help=text)
            parser.lists.add(f"--{name}")
        else:
            by_type[kind].discard(name)
    for kind, skip in by_type.items():
        parser.add_class_arguments(kind, as_group=False, skip=skip)
    for action in parser._actions:
        action.help = help_texts.get(action.dest) or action.help
