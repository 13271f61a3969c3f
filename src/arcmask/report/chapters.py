"""Arrange a run as a chapter: its tables and figures in order, and the text between them."""

import shlex
from collections.abc import Mapping

from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, comparisons, multiplicity_note
from arcmask.report.conclusion import conclusion, training_note
from arcmask.report.document import (
    Block,
    Chapter,
    Panel,
    Picture,
    Section,
    figure_block,
    sample_text,
    settings_block,
    table_blocks,
)
from arcmask.report.folder import SHOWN, Experiment
from arcmask.report.loop import loop_figure
from arcmask.report.method_tables import arm_table, hyperparameter_table, operator_table, overhead_table
from arcmask.report.quantities import KINDS, MAIN, quantities
from arcmask.report.score_figures import difference_figures, forest_plot, score_figures
from arcmask.report.step_metrics import read_step
from arcmask.report.tables import bound_table, difference_table, gain_table, interval_table, main_table, seed_table
from arcmask.report.training_figures import experiment_figures
from arcmask.report.training_tables import ablation_tables, likelihood_table, regime_table
from arcmask.report.wording import count, listed
from arcmask.run_folder import INSPECTION, prompts_file

_PNG, _HEADER = b"\x89PNG\r\n\x1a\n", 24  # a file's first bytes, and the end of its width and height
# Name of a diagnostic -> title, in the order in which they are shown.
UNTRAINED = {
    "gain": "Held-out bound with feedback minus the plain bound",
    "generation": "Quality of samples against their entropy",
}
GEOMETRY = {
    "norms": "Embedding norm against frequency rank",
    "angles": "Angle between mask and predicted mean over t",
    "paths": "Norm along the straight path to the predicted mean",
    "sphere": "Paths of the operators on the sphere",
    "confidence": "Entropies and the confidence weight",
    "karcher": "Distance from the converged Fréchet mean",
    "accuracy": "Accuracy of the predictions",
}


def experiment_chapter(experiment: Experiment, name: str) -> Chapter:
    """Return the chapter of a folder of `arcmask reproduce`."""
    compared = comparisons(experiment)
    sections = [
        Section("found", "Main results", _results(experiment, compared)),
        Section("run", "What was run", _setup(experiment)),
        Section("untrained", "Feedback without training", figure_block(inspection_figures(experiment, UNTRAINED))),
        Section("generation", "Generation", _generation(experiment, compared)),
        Section("training", "Training and likelihood", _training(experiment, compared)),
        Section("method", "Method and cost", _method(experiment)),
        Section("geometry", "Geometry", _geometry(experiment)),
        Section("samples", "Samples", _samples(experiment)),
        Section("repeat", "How to reproduce", _commands(experiment)),
    ]
    plan = experiment.plan
    title = str(plan.get("title") or plan.get("recipe") or experiment.folder.name)
    return Chapter(name, title, _scope(experiment), [section for section in sections if section.blocks])


def _scope(experiment: Experiment) -> str:
    cells = len(experiment.arms) * len(experiment.seeds) * len(experiment.budgets)
    if not experiment.budgets:
        return f"{count(len(experiment.arms), 'arm')} \u00d7 {count(len(experiment.seeds), 'seed')}, without samples."
    return (
        f"{count(len(experiment.arms), 'arm')} \u00d7 {count(len(experiment.seeds), 'seed')} \u00d7 "
        f"{count(len(experiment.budgets), 'budget')} (T = {listed(experiment.budgets)}); {len(experiment.scores)} of "
        f"{cells} cells are scored."
    )


def _setup(experiment: Experiment) -> list[Block]:
    plan, prompts = experiment.plan, _prompts(experiment)
    sampling = {key.replace("_", " "): value for key, value in (plan.get("sampling") or {}).items()}
    facts = {
        "Recipe": plan.get("recipe"),
        "Base model": plan.get("base"),
        "Corpus": plan.get("corpus"),
        "Data": plan.get("data"),
        "Tokenizer": plan.get("tokenizer"),
        "Seeds": listed(experiment.seeds),
        "Budgets": f"T = {listed(experiment.budgets)} denoising steps" if experiment.budgets else None,
        "Samples": f"{plan.get('samples')} per cell, {'up to ' if prompts else ''}{plan.get('length')} tokens each",
        "Prompts": prompts,
        "Sampling": ", ".join(
            key if value is True else f"{key} {value}" for key, value in sampling.items() if value not in (None, False)
        ),
        "Evaluator": plan.get("evaluator"),
        "MAUVE features": plan.get("features"),
    }
    pairing = (
        "A seed determines both training and generation. For each seed, all arms use the same data order, times, "
        "masks, gates and random draws in sampling. Differences between arms are therefore computed seed by seed. "
    )
    protocol = (
        "The experiment follows the paper\u2019s protocol, so the tables also show the paper\u2019s values."
        if experiment.is_paper
        else "The tables have the paper\u2019s form but do not show its values, because the model, the data or the "
        "settings are not those of the paper."
    )
    return [
        Block("facts", items=[(key, str(value)) for key, value in facts.items() if value not in (None, "")]),
        Block("text", pairing + protocol),
        *table_blocks(arm_table(experiment), hyperparameter_table(experiment)),
    ]


def _prompts(experiment: Experiment) -> str | None:
    """Describe what samples start from; None if they start from masks alone."""
    plan = experiment.plan
    if not plan.get("ends"):
        return plan.get("prompts")
    first, last = plan["ends"]
    return (
        f"the first {first} and the last {last} tokens of a held-out row are given; "
        f"{count(plan.get('fills', 1), 'sample')} for each row"
    )


def _method(experiment: Experiment) -> list[Block]:
    if not any(arm.has_feedback for arm in experiment.arms.values()):
        return []
    return [
        *figure_block([loop_figure()]),
        *table_blocks(operator_table(experiment), overhead_table(experiment)),
    ]


def _missing(experiment: Experiment) -> list[Block]:
    lines = experiment.missing()
    available = {quantity.score for quantity in quantities(experiment, MAIN)}
    plan = experiment.plan
    planned = {"generative_perplexity": plan.get("evaluator"), "mauve": plan.get("features")}
    planned |= dict.fromkeys(("distinct_samples", "nearest"), plan.get("nearest"))
    planned["real_word_rate"] = plan.get("tokenizer") != "residues"  # sequences have no words
    absent = [score for score in MAIN if score not in available and planned.get(score, True)]
    if experiment.scores:
        lines += [f"no cell has a {KINDS[score].label} score" for score in absent]
    if not experiment.inspected:
        lines.append(f"the base model was not inspected ({INSPECTION} does not exist)")
    return [Block("notice", "Missing from this report", items=lines)] if lines else []


def _results(experiment: Experiment, compared: list[Comparison]) -> list[Block]:
    text = conclusion(experiment, compared)
    note = "No two arms have a score for the same seed yet, so no arms are compared."
    return [
        *([Block("lead", text)] if text else []),
        *figure_block(forest_plot(experiment, compared)),
        *(table_blocks(gain_table(experiment, compared)) if experiment.is_paper else []),
        Block("text", _notes(experiment, compared) if compared else note),
        *_missing(experiment),
    ]


def _notes(experiment: Experiment, compared: list[Comparison]) -> str:
    return " ".join(filter(None, (training_note(experiment, compared), multiplicity_note(compared))))


def _generation(experiment: Experiment, compared: list[Comparison]) -> list[Block]:
    if not experiment.scores:
        reason = (
            "No cell is scored yet."
            if experiment.budgets
            else "The plan has no budgets, so there are no samples to score."
        )
        return [Block("text", reason)]
    gains = [] if experiment.is_paper else [gain_table(experiment, compared)]  # the paper's are among the main results
    return [
        *table_blocks(main_table(experiment)),
        *figure_block(score_figures(experiment)),
        *table_blocks(interval_table(experiment), difference_table(experiment, compared)),
        *figure_block(difference_figures(experiment, compared)),
        *table_blocks(*gains, seed_table(experiment), interval_table(experiment, "diversity")),
    ]


def _training(experiment: Experiment, compared: list[Comparison]) -> list[Block]:
    step, regimes, ablations = read_step(experiment), regime_table(experiment), ablation_tables(experiment)
    blocks = figure_block(experiment_figures(experiment)) + table_blocks(regimes, *ablations)
    if not (regimes or ablations) and step is not None:
        text = f"The training tables show step {step:,}, which no training run has reached yet."
        blocks.append(Block("text", text))
    if experiment.is_paper and regimes and not ablations:
        text = "The paper\u2019s ablations are experiments of their own, the recipes paper-karcher and paper-topk."
        blocks.append(Block("text", text))
    blocks += table_blocks(likelihood_table(experiment), bound_table(experiment, compared))
    return blocks or [Block("text", "No training run has finished a step yet.")]


def _geometry(experiment: Experiment) -> list[Block]:
    missing = [Block("text", f"There are no figures, because the base model was not inspected ({INSPECTION}).")]
    return figure_block(inspection_figures(experiment, GEOMETRY)) or missing


def _samples(experiment: Experiment) -> list[Block]:
    shown = panels(experiment)
    if not shown:
        return [Block("text", "There are no samples yet.")] if experiment.budgets else []
    text = (
        f"The texts in a row were sampled with the same seed, index and random numbers. They are the first {SHOWN} "
        "samples of each cell and were not selected."
    )
    return [Block("text", text), Block("samples", items=[[arm.label for arm in experiment.arms.values()], shown])]


def _commands(experiment: Experiment) -> list[Block]:
    command = experiment.plan.get("command")
    lines = [str(command)] if command else []
    lines += [f"arcmask report {shlex.quote(str(experiment.folder))}", *_sample_command(experiment)]
    blocks = [
        Block("text", "Run the whole experiment, build this report again, or sample one cell:"),
        Block("code", "\n".join(lines)),
    ]
    environment = [(key, str(value)) for key, value in (experiment.plan.get("environment") or {}).items()]
    if environment:
        blocks += [Block("text", "The experiment was run with:"), Block("facts", items=environment)]
    trained = [arm for arm in experiment.arms.values() if arm.kind == "trained"]
    return blocks + [settings_block(arm.train, f"Training settings: {arm.label}") for arm in trained]


def _sample_command(experiment: Experiment) -> list[str]:
    """Return the command that samples the first cell again, with the settings that its first sample records."""
    for (arm, seed, budget), records in experiment.samples.items():
        if records:
            names = ("length", "seed", "rule", "temperature", "top_p", "top_k", "drop_crossing", "precision")
            recorded = {name: records[0][name] for name in names if records[0].get(name) not in (None, False)}
            settings = {"num": experiment.plan.get("samples"), "steps": budget, "seed": seed} | recorded
            options = [word for name, value in settings.items() for word in (f"--{name}", str(value).lower())]
            options += _prompt_options(experiment, seed)
            options += ["--feedback", "none"] if experiment.arms[arm].kind == "base" else []
            checkpoint = experiment.checkpoint(arm, seed)
            return [shlex.join(["arcmask", "sample", checkpoint, *options, "--out", "again.jsonl"])]
    return []


def _prompt_options(experiment: Experiment, seed: int) -> list[str]:
    """Return the option that names the file of prompts, if there is one."""
    plan = experiment.plan
    path = prompts_file(experiment.folder, seed) if plan.get("ends") else plan.get("prompts")
    return [] if path is None else ["--prompts", str(path)]


def inspection_figures(experiment: Experiment, titles: Mapping[str, str]) -> list[Picture]:
    """Return the diagnostics with these titles that have a picture; empty if the base was not inspected."""
    pictures = []
    for name, title in titles.items():
        data, png = experiment.inspected.get(name), experiment.folder / INSPECTION / f"{name}.png"
        if data is not None and png.is_file():
            content = png.read_bytes()
            if not content.startswith(_PNG) or len(content) < _HEADER:
                raise ArcmaskError(f"{png} is not a picture; remove {png.parent} and run the same command again")
            pictures.append(Picture(f"base-{name}", title, str(data.get("reading", "")), content, data))
    return pictures


def panels(experiment: Experiment) -> list[Panel]:
    """Return a panel for every budget and seed that has samples."""
    shown = []
    for budget in experiment.budgets:
        for seed in experiment.seeds:
            texts = [_texts(experiment, arm, seed, budget) for arm in experiment.arms]
            indices = sorted({index for by_index in texts for index in by_index})
            if indices:
                shown.append(Panel(budget, seed, [(i, [by_index.get(i) for by_index in texts]) for i in indices]))
    return shown


def _texts(experiment: Experiment, arm: str, seed: int, budget: int) -> dict[int, str]:
    records = experiment.samples.get((arm, seed, budget), [])
    return {int(record["index"]): sample_text(record) for record in records}
