"""The command line: parse, look names up, call. No maths, and no torch until a command needs it."""

import os
import re
import shlex
import sys
import warnings
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn

from docstring_parser import parse as parse_docstring
from jsonargparse import SUPPRESS, ArgumentParser, Namespace

import arcmask
from arcmask.data.config import PrepareConfig
from arcmask.diagnostics.config import InspectConfig
from arcmask.errors import ArcmaskError
from arcmask.evaluation.config import EvaluateConfig
from arcmask.experiment.plan import Changes, Plan
from arcmask.files import writable
from arcmask.recipes import EXPERIMENTS, RECIPES, find_experiment, find_recipe
from arcmask.report.config import ReportConfig
from arcmask.report.explorer.config import ExploreConfig
from arcmask.sampling.config import SampleConfig
from arcmask.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """What to read, what to write.

    Args:
        source: A folder, a run, a Lightning .ckpt or a hub id.
        target: The folder to make in the released layout; or a file, if its name ends in .ckpt.
        weights: Which weights to take where the source has both.
        mask_id: The id of the mask, for a source that does not say.
        dtype: Of the weights in the target; by default as they are.
    """

    source: str
    target: str
    weights: Literal["ema", "raw"] = "ema"
    mask_id: int | None = None
    dtype: Literal["float32", "bfloat16"] | None = None


@dataclass(frozen=True)
class Command:
    """A subcommand: its settings, what it does with them, and whether it can say beforehand what that would be."""

    summary: str
    settings: type
    positional: tuple[str, ...]  # settings that are given by their place; all others are options
    run: Callable[[Any], None]
    plan: Callable[[Any], str] | None = None
    shapes: Mapping[str, Any] = field(default_factory=dict)  # of options that do not take exactly one word


def _prepare(config: PrepareConfig) -> None:
    from arcmask.data import prepare

    print("\n".join([*prepare(config).describe(), config.out]))


def _plan_prepare(config: PrepareConfig) -> str:
    from arcmask.data import plan

    return plan(config)


def _convert(config: ConvertConfig) -> None:
    from arcmask.checkpoint import convert

    print(convert(config.source, config.target, weights=config.weights, mask_id=config.mask_id, dtype=config.dtype))


def _sample(config: SampleConfig) -> None:
    from arcmask.checkpoint import load_for_use
    from arcmask.sampling.command import run

    run(config, load_for_use)


def _evaluate(config: EvaluateConfig) -> None:
    from arcmask.checkpoint import load_for_use
    from arcmask.evaluation.command import run

    run(config, load_for_use)


def _plan_evaluate(config: EvaluateConfig) -> str:
    from arcmask.evaluation.command import plan

    return plan(config)


def _inspect(config: InspectConfig) -> None:
    from arcmask.diagnostics.command import inspect

    found = inspect(config)
    print("\n".join([*(f"{name}: {reading}" for name, reading in found.readings.items()), *found.left_out]))
    print(found.folder)


def _explore(config: ExploreConfig) -> None:
    # What the settings alone can tell is said before a model is opened.
    out = writable(Path(config.out))
    from arcmask.checkpoint import load_for_use
    from arcmask.report.explorer import write_page
    from arcmask.sampling.arms import trace_arms

    print(write_page(config, trace_arms(config.sample(), config.feedback, load_for_use)))
    if config.open:
        webbrowser.open(out.absolute().as_uri())


@dataclass(frozen=True, kw_only=True)
class TrainCommand(TrainConfig):
    """A recipe's settings, each of which can be changed, and where to train.

    Args:
        recipe: A recipe's name; it gives every setting that is not given.
        run: The folder of the run. By default runs/RECIPE.
        resume: Go on with a run that exists; false refuses it.
    """

    recipe: str
    run: str | None = None
    resume: bool = True

    @property
    def folder(self) -> str:
        """Where to train."""
        return self.run or f"runs/{self.recipe}"

    def settings(self) -> TrainConfig:
        """What to train."""
        return TrainConfig(**{setting.name: getattr(self, setting.name) for setting in fields(TrainConfig)})


def _train(config: TrainCommand) -> None:
    from arcmask.data import prepare
    from arcmask.training import STOPPED, Stopped, train

    if not config.resume and Path(config.folder).exists():
        raise ArcmaskError(f"the run {config.folder} exists already, and resume is false; give another name")
    needed = find_recipe(config.recipe).prepare
    if config.data == needed.out:
        prepare(needed)
    try:
        print(train(config.settings(), config.folder))
    except Stopped:
        print(f"stopped and saved; the same command goes on with {config.folder}", file=sys.stderr)
        sys.exit(STOPPED)


def _plan_train(config: TrainCommand) -> str:
    from arcmask.data import plan as plan_data
    from arcmask.training.plan import plan

    needed = find_recipe(config.recipe).prepare
    if config.data == needed.out and not Path(needed.out).is_dir():
        return f"first: {plan_data(needed)}; then train {config.folder} (prepare the data to see what that takes)"
    return plan(config.settings(), Path(config.folder))


@dataclass(frozen=True, kw_only=True)
class ReproduceCommand(Changes):
    """An experiment, where to carry it out, and what to change in it.

    Args:
        recipe: An experiment's name.
        run: The folder of the experiment. By default runs/RECIPE.
    """

    recipe: str
    run: str | None = None

    @property
    def folder(self) -> str:
        """Where to carry it out."""
        return self.run or f"runs/{self.recipe}"

    def plan(self) -> Plan:
        """What to carry out."""
        return self.apply(find_experiment(self.recipe))


def _reproduce(config: ReproduceCommand) -> None:
    from rich.console import Console

    from arcmask.experiment.run import reproduce
    from arcmask.report import build_report, terminal_table
    from arcmask.training import STOPPED, Stopped

    try:
        folder = reproduce(config.plan(), config.folder, command=shlex.join(["arcmask", *sys.argv[1:]]))
    except Stopped:
        print(f"stopped and saved; the same command goes on with {config.folder}", file=sys.stderr)
        sys.exit(STOPPED)
    if int(os.environ.get("RANK", 0)) == 0:
        report = build_report([folder], None)
        Console().print(terminal_table(folder))
        print(report)


def _plan_reproduce(config: ReproduceCommand) -> str:
    from arcmask.experiment.estimate import describe

    return describe(config.plan())


def _report(config: ReportConfig) -> None:
    from arcmask.report import build_report

    print(build_report(config.runs, config.out))


COMMANDS = {
    "reproduce": Command(
        "carry out an experiment: arms, seeds, budgets, one report",
        ReproduceCommand,
        ("recipe",),
        _reproduce,
        _plan_reproduce,
        shapes={
            "arms": {"nargs": "+", "type": str},
            "seeds": {"nargs": "+", "type": int},
            "budgets": {"nargs": "*", "type": int},
        },
    ),
    "prepare": Command(
        "tokenise a corpus into rows that training reads", PrepareConfig, ("corpus", "out"), _prepare, _plan_prepare
    ),
    "train": Command("train a model by a recipe, or go on with it", TrainCommand, ("recipe",), _train, _plan_train),
    "sample": Command("write text with a checkpoint", SampleConfig, ("checkpoint",), _sample),
    "evaluate": Command(
        "score samples, and a checkpoint's likelihood", EvaluateConfig, ("samples",), _evaluate, _plan_evaluate
    ),
    "inspect": Command("show the geometry of a checkpoint", InspectConfig, ("checkpoint",), _inspect),
    "explore": Command(
        "write a page that shows how a sample forms, step by step",
        ExploreConfig,
        ("checkpoint",),
        _explore,
        shapes={"feedback": {"nargs": "+", "type": str}, "open": {"action": "store_true"}},
    ),
    "report": Command("show what runs found, as one page with tables and figures", ReportConfig, ("runs",), _report),
    "convert": Command("turn a checkpoint into another form", ConvertConfig, ("source", "target"), _convert),
}


class Parser(ArgumentParser):
    """A parser whose complaint is one sentence, like all others."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        words = re.sub(r'Parser key "(.+?)":', r"--\1:", " ".join(message.split())).replace("typing.", "")
        words = re.sub(r"<class '(\w+)'>", r"\1", words)
        union = re.match(r"(--\S+:).*?Subtypes: \[(.*?)\].*?[Vv]alue: (\S+)", words)
        if union:
            kinds = [kind for kind in union[2].split(", ") if kind != "NoneType"]
            words = f"{union[1]} Expected a {' or '.join(kinds)}. Got value: {union[3]}"
        sys.exit(_say(words))


def _help_texts(settings: type) -> dict[str, str | None]:
    """What the docstrings of a class and of those it builds on say of each setting."""
    documented = [parse_docstring(kind.__doc__ or "") for kind in reversed(settings.__mro__[:-1])]
    return {text.arg_name: text.description for found in documented for text in found.params}


def build_parser(recipe: str | None = None) -> Parser:
    """The whole command line; a recipe's settings are the defaults of `train`."""
    parser = Parser(
        prog="arcmask",
        description="Predictive feedback for masked diffusion language models, along the sphere of their embeddings.",
        version=arcmask.__version__,
    )
    subcommands = parser.add_subcommands(required=False)
    for name, command in COMMANDS.items():
        subparser = Parser(description=command.summary, print_config="--print-%s")
        subparser.add_argument("--config", action="config", help="a YAML file with settings; options go over it")
        help_texts = _help_texts(command.settings)
        for place in command.positional:
            # Suppressed, so that a place that is left empty does not hide what a file says.
            count = "*" if place in _several(command) else "?"
            subparser.add_argument(
                place, nargs=count, type=str, metavar=place.upper(), default=SUPPRESS, help=help_texts[place]
            )
        by_hand = {*command.positional, *command.shapes}
        subparser.add_class_arguments(command.settings, as_group=False, skip=by_hand)
        defaults: dict[str, Any] = {setting.name: setting.default for setting in fields(command.settings)}
        for option, shape in command.shapes.items():
            default = list(defaults[option]) if isinstance(defaults[option], tuple) else defaults[option]
            subparser.add_argument(f"--{option}", default=default, help=help_texts[option], **shape)
        if name == "train" and recipe is not None:
            subparser.set_defaults(asdict(find_recipe(recipe).train))
        if command.plan is not None:
            subparser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
        subcommands.add_subcommand(name, subparser, help=command.summary)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; without one, say what there is. Bad input is one sentence and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: _say(str(message))  # type: ignore[assignment]
    words = sys.argv[1:] if arguments is None else list(arguments)
    recipe = words[1] if words[:1] == ["train"] and len(words) > 1 and not words[1].startswith("-") else None
    try:
        if words in (["train"], ["reproduce"]):
            names = RECIPES if words == ["train"] else EXPERIMENTS
            raise ArcmaskError(f"arcmask {words[0]} needs a RECIPE; choose one of: {', '.join(sorted(names))}")
        parser = build_parser(recipe)
        given = parser.parse_args(words)
        if given.subcommand is None:
            parser.print_help()
            return
        _run(given.subcommand, given[given.subcommand])
    except ArcmaskError as error:
        sys.exit(_say(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _several(command: Command) -> set[str]:
    """The places that take any number of values; whether there are enough is for the settings to say."""
    return {field.name for field in fields(command.settings) if field.type == tuple[str, ...]} & {*command.positional}


def _run(name: str, given: Namespace) -> None:
    command = COMMANDS[name]
    needed = [place for place in command.positional if place not in _several(command)]
    missing = [place.upper() for place in needed if getattr(given, place, None) is None]
    if missing:
        raise ArcmaskError(f"arcmask {name} needs {' and '.join(missing)}; arcmask {name} --help says more")
    values = {key: value for key, value in vars(given).items() if key not in ("config", "dry_run")}
    config = command.settings(**values)
    if command.plan is not None and given.dry_run:
        print(command.plan(config))
    else:
        command.run(config)


def _say(message: ArcmaskError | str) -> int:
    print(f"arcmask: {message}", file=sys.stderr)
    return 2
