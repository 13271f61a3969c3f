"""A run as a chapter: which tables and figures it has, in which order, and the words between them."""

import json
import shlex
from typing import Any

import yaml  # type: ignore[import-untyped]

from arcmask.report.comparisons import Comparison, about_the_number, comparisons, pairs, tally
from arcmask.report.document import Block, Chapter, Picture, Section, figure_block, table_blocks
from arcmask.report.folder import Experiment, Training
from arcmask.report.geometry import norm_figure, sphere_figures
from arcmask.report.quantities import KINDS, MAIN, quantities
from arcmask.report.samples import panels
from arcmask.report.score_figures import difference_figures, score_figures
from arcmask.report.tables import difference_table, interval_table, main_table, seed_table
from arcmask.report.training import read_step
from arcmask.report.training_figures import experiment_figures, single_figures
from arcmask.report.training_tables import ablation_tables, arm_table, bound_table, likelihood_table, regime_table
from arcmask.report.wording import count, listed

_PICTURES = {
    "angles": "Angle between mask and predicted mean over t",
    "confidence": "Entropies and the confidence weight",
    "karcher": "Distance from the converged mean",
    "accuracy": "How often a prediction is right",
}


def experiment_chapter(experiment: Experiment, name: str) -> Chapter:
    """A folder of `arcmask reproduce`."""
    found = comparisons(experiment)
    sections = [
        Section("run", "What was run", _what_was_run(experiment)),
        Section("found", "What was found", _what_was_found(experiment, found)),
        Section("generation", "Generation", _generation(experiment, found)),
        Section("training", "Training and likelihood", _training(experiment, found)),
        Section("geometry", "Geometry", _geometry(experiment)),
        Section("samples", "Samples side by side", _samples(experiment)),
        Section("repeat", "How to repeat it", _repeat(experiment)),
    ]
    plan = experiment.plan
    title = str(plan.get("title") or plan.get("recipe") or experiment.folder.name)
    return Chapter(name, title, _scope(experiment), sections)


def _scope(experiment: Experiment) -> str:
    cells = len(experiment.arms) * len(experiment.seeds) * len(experiment.budgets)
    steps, done = listed([str(budget) for budget in experiment.budgets]), len(experiment.scores)
    return (
        f"{count(len(experiment.arms), 'arm')} \u00d7 {count(len(experiment.seeds), 'seed')} \u00d7 "
        f"{count(len(experiment.budgets), 'budget')} (T = {steps}); {done} of {cells} cells are scored."
    )


def _what_was_run(experiment: Experiment) -> list[Block]:
    plan = experiment.plan
    told = {
        "Recipe": plan.get("recipe"),
        "Base model": plan.get("base"),
        "Corpus": plan.get("corpus"),
        "Data": plan.get("data"),
        "Tokenizer": plan.get("tokenizer"),
        "Seeds": listed([str(seed) for seed in experiment.seeds]),
        "Budgets": f"T = {listed([str(budget) for budget in experiment.budgets])} denoising steps",
        "Samples": f"{plan.get('samples')} a cell, {plan.get('length')} tokens each",
        "Sampling": _settings(plan.get("sampling") or {}),
        "Evaluator": plan.get("evaluator"),
        "MAUVE features": plan.get("features"),
    }
    facts = [(key, str(value)) for key, value in told.items() if value not in (None, "")]
    notes = (
        "A seed fixes training and generation. For a seed all arms share the order of the data, times, masks, gates "
        "and the draws of sampling, so that differences between arms are taken seed by seed. "
    ) + (
        "The protocol is the paper\u2019s: its values stand beside ours."
        if experiment.is_paper
        else "The protocol is not the paper\u2019s (its model, data, lengths and evaluator are others), so that its "
        "values are not put beside these; the tables have its form."
    )
    return [
        Block("facts", items=facts),
        Block("text", notes),
        *_missing(experiment),
        *table_blocks(arm_table(experiment)),
    ]


def _settings(given: dict[str, Any]) -> str:
    """What is not set, or set to false, is left out."""
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in given.items() if value not in (None, False))


def _missing(experiment: Experiment) -> list[Block]:
    lines = experiment.missing()
    have = {quantity.score for quantity in quantities(experiment, MAIN)}
    if experiment.scores:
        lines += [f"no cell has a score of {KINDS[score].label}" for score in MAIN if score not in have]
    if not experiment.inspected:
        lines.append("the base was not inspected (base/inspect is not there)")
    return [Block("notice", "Not in this report", items=lines)] if lines else []


def _what_was_found(experiment: Experiment, found: list[Comparison]) -> list[Block]:
    if not found:
        return [Block("text", "No two arms have a score for the same seed yet, so that nothing can be compared.")]
    blocks = [Block("text", about_the_number(found))]
    shown = pairs(experiment)
    direct = [p for p in shown if p.second.train.get("operator") == "linear"]
    for pair in direct or shown:
        mine = [c for c in found if c.pair == pair]
        blocks.append(Block("bullets", tally(found, pair), items=[(c.statement, c.reading) for c in mine]))
    rest = [tally(found, pair) for pair in shown if direct and pair not in direct]
    if rest:
        blocks.append(
            Block("bullets", "Against the baseline, each in the tables below:", items=[(r, "") for r in rest])
        )
    blocks.append(
        Block(
            "text",
            "Generative perplexity falls with the diversity of a text as well as with its quality: a difference in it "
            "is to be read together with the difference in entropy at the same budget.",
        )
    )
    return blocks


def _generation(experiment: Experiment, found: list[Comparison]) -> list[Block]:
    if not experiment.scores:
        return [Block("text", "No cell is scored yet.")]
    return [
        *table_blocks(main_table(experiment)),
        *figure_block(score_figures(experiment)),
        *table_blocks(interval_table(experiment), difference_table(experiment, found)),
        *figure_block(difference_figures(experiment, found)),
        *table_blocks(seed_table(experiment), interval_table(experiment, "diversity")),
    ]


def _training(experiment: Experiment, found: list[Comparison]) -> list[Block]:
    blocks = figure_block(experiment_figures(experiment))
    regimes = regime_table(experiment)
    blocks += table_blocks(regimes, *ablation_tables(experiment))
    if regimes is None and read_step(experiment) is not None:
        blocks.append(
            Block("text", f"No training has reached step {read_step(experiment):,}, at which the tables read.")
        )
    blocks += table_blocks(likelihood_table(experiment), bound_table(experiment, found))
    return blocks or [Block("text", "No training has finished a step yet.")]


def _geometry(experiment: Experiment) -> list[Block]:
    drawings: list[Any] = list(sphere_figures(experiment))
    norms = norm_figure(experiment.inspected.get("norms", {}))
    drawings += [] if norms is None else [norms]
    for name, title in _PICTURES.items():
        png = experiment.folder / "base" / "inspect" / f"{name}.png"
        if name in experiment.inspected and png.is_file():
            data = experiment.inspected[name]
            drawings.append(Picture(f"base-{name}", title, str(data.get("reading", "")), png.read_bytes(), data))
    blocks = figure_block(drawings)
    if norms is None:
        blocks.append(
            Block("text", "Norm against frequency rank is not shown: base/inspect has no norms with frequencies.")
        )
    return blocks


def _samples(experiment: Experiment) -> list[Block]:
    found = panels(experiment)
    if not found:
        return [Block("text", "There are no samples yet.")]
    text = (
        "Texts in a row were drawn with the same random numbers, seed and index, by each arm; they were not chosen, "
        "but are the first of their cell."
    )
    return [Block("text", text), Block("samples", items=[[arm.label for arm in experiment.arms.values()], found])]


def _repeat(experiment: Experiment) -> list[Block]:
    command = experiment.plan.get("command")
    folder = shlex.quote(str(experiment.folder))
    lines = [str(command)] if command else []
    lines += [f"arcmask report {folder}", *_by_hand(experiment)]
    environment = [(key, str(value)) for key, value in (experiment.plan.get("environment") or {}).items()]
    blocks = [
        Block("text", "All of it; then this report alone; then the samples of one cell by hand."),
        Block("code", "\n".join(lines)),
    ]
    if environment:
        blocks += [Block("text", "It was run with:"), Block("facts", items=environment)]
    for arm in experiment.arms.values():
        settings = yaml.safe_dump(dict(arm.train), sort_keys=False, allow_unicode=True)
        blocks.append(Block("code", settings, items=[f"Training settings: {arm.label}"]))
    return blocks


def _by_hand(experiment: Experiment) -> list[str]:
    """The command for the samples of one cell, from what its first sample says of itself."""
    for (arm, seed, budget), records in experiment.samples.items():
        if not records:
            continue
        home, first = experiment.folder / arm / f"seed-{seed}", records[0]
        told = {"num": experiment.plan.get("samples"), "steps": budget, "seed": seed} | {
            name: first[name]
            for name in ("length", "seed", "rule", "temperature", "top_p", "top_k", "drop_crossing", "precision")
            if first.get(name) not in (None, False)
        }
        options = " ".join(f"--{name} {str(value).lower()}" for name, value in told.items())
        return [f"arcmask sample {shlex.quote(str(home / 'train'))} {options} --out again.jsonl"]
    return []


def training_chapter(training: Training, name: str) -> Chapter:
    """A folder of `arcmask train`."""
    asked = training.settings.get("steps")
    scope = f"One training: {training.done:,} of {asked:,} steps are done." if asked else f"{training.done:,} steps."
    settings = yaml.safe_dump(dict(training.settings), sort_keys=False, allow_unicode=True)
    last = json.dumps(training.records[-1], indent=1)
    told = [
        (key, str(training.settings.get(key)))
        for key in ("data", "init", "operator", "seed")
        if key in training.settings
    ]
    notice = []
    if asked and training.done < asked:
        notice = [Block("notice", "Not in this report", items=[f"training after step {training.done:,} of {asked:,}"])]
    sections = [
        Section("run", "What was run", [Block("facts", items=told), *notice]),
        Section("training", "Training", figure_block(single_figures(training))),
        Section("repeat", "Settings", [
            Block("code", settings, items=["Training settings"]),
            Block("code", last, items=["Metrics of the last step"]),
        ]),
    ]  # fmt: skip
    return Chapter(name, training.folder.resolve().name, scope, sections)
