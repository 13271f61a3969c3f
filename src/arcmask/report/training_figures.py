"""Figures of training: perplexity, the learned weight and the angle over steps, for every arm and seed."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from arcmask import figures
from arcmask.evaluation.statistics import summarize
from arcmask.report.figure import SIZE, Drawing, Look, legend_below, looks, name_axes
from arcmask.report.folder import Arm, Experiment, Training
from arcmask.report.training import Curve, block_size, curve
from arcmask.report.wording import count

Runs = Mapping[tuple[str, int], Training]


def training_figures(arms: list[Arm], runs: Runs, baseline: str | None = None) -> list[Drawing]:
    """Those for which the metrics have something."""
    drawings = [
        _perplexity(arms, runs),
        None if baseline is None else _against_baseline(arms, runs, baseline),
        _validation(arms, runs),
        _fed_back(arms, runs, "weight"),
        _fed_back(arms, runs, "angle"),
    ]
    return [drawing for drawing in drawings if drawing is not None]


def experiment_figures(experiment: Experiment) -> list[Drawing]:
    """All trainings of an experiment."""
    return training_figures(list(experiment.arms.values()), experiment.trainings, experiment.baseline)


def single_figures(training: Training) -> list[Drawing]:
    """One training by itself."""
    operator, seed = str(training.settings.get("operator", "run")), int(training.settings.get("seed", 0))
    arm = Arm(operator, f"{training.folder.name} ({operator})", training.settings)
    return training_figures([arm], {(operator, seed): training})


def _curves(arms: list[Arm], runs: Runs, key: str, size: int) -> dict[str, dict[int, Curve]]:
    found: dict[str, dict[int, Curve]] = {arm.name: {} for arm in arms}
    for (arm, seed), training in runs.items():
        if arm not in found:
            continue
        made = curve(training, key, size)
        if made.steps:
            found[arm][seed] = made
    return {arm: by_seed for arm, by_seed in found.items() if by_seed}


def _perplexity(arms: list[Arm], runs: Runs) -> Drawing | None:
    size = block_size(list(runs.values()))
    curves = _curves(arms, runs, "nll", size)
    if not curves:
        return None
    made, axes = figures.figure(*SIZE)
    data = _draw_curves(axes, arms, curves, math.exp)
    ends = [math.exp(value) for by_seed in curves.values() for c in by_seed.values() for value in c.values]
    if max(ends) > 4 * min(ends):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    name_axes(axes, "Training perplexity", "training step", "PPL")
    legend_below(axes)
    caption = f"Perplexity of the training loss, {_blocks(size)}; {_lines(curves)}"
    return Drawing("training-perplexity", "Training perplexity", caption, made, data | {"block": size})


def _against_baseline(arms: list[Arm], runs: Runs, baseline: str) -> Drawing | None:
    """For a seed arms share data, times, masks and gates: the difference is free of the noise that these bring."""
    size = block_size(list(runs.values()))
    curves = _curves(arms, runs, "nll", size)
    base = curves.pop(baseline, {})
    differences: dict[str, dict[int, Curve]] = {}
    for arm, by_seed in curves.items():
        for seed, mine in by_seed.items():
            theirs = dict(zip(base[seed].steps, base[seed].values, strict=True)) if seed in base else {}
            pairs = [(s, v - theirs[s]) for s, v in zip(mine.steps, mine.values, strict=True) if s in theirs]
            if pairs:
                differences.setdefault(arm, {})[seed] = Curve([s for s, _ in pairs], [v for _, v in pairs])
    if not differences:
        return None
    made, axes = figures.figure(*SIZE)
    axes.axhline(0, color=figures.MUTED, lw=1)
    data = _draw_curves(axes, arms, differences, float, band=True)
    label = next(arm.label for arm in arms if arm.name == baseline)
    name_axes(axes, f"Training NLL minus that of \u201c{label}\u201d", "training step", "nats a token")
    legend_below(axes)
    caption = (
        f"The difference to the baseline at equal seed and step, {_blocks(size)}, which leaves out the noise that the "
        "arms share; the line is the mean over seeds, the band its 95 % interval at each point."
    )
    return Drawing("training-difference", "Training loss against the baseline", caption, made, data | {"block": size})


def _validation(arms: list[Arm], runs: Runs) -> Drawing | None:
    ways = {"feedback": "two-pass", "plain": "plain"}
    curves = {way: _curves(arms, runs, f"validation_nll_{way}", 1) for way in ways}
    if not any(curves.values()):
        return None
    made, axes = figures.figure(*SIZE)
    data: dict[str, Any] = {"arms": {}}
    style = looks(arms)
    for way, short in ways.items():
        for arm in arms:
            by_seed = curves[way].get(arm.name)
            if by_seed:
                steps, means = _mean_over_seeds(by_seed, math.exp)
                look = style[arm.name]
                line = {"color": look.colour, "marker": look.marker, "ms": 4, "lw": 1.5}
                line |= {"ls": "-"} if way == "feedback" else {"ls": (0, (1.5, 1.5)), "mfc": "none"}
                axes.plot(steps, means, label=f"{arm.label}, {short}", **line)  # type: ignore[arg-type]
                data["arms"].setdefault(arm.name, {"label": arm.label})[way] = _data(by_seed, math.exp)
    name_axes(axes, "Validation perplexity", "training step", "PPL")
    legend_below(axes)
    caption = (
        "Perplexity on held-out rows with averaged weights, with feedback (two-pass, solid) and without (plain, "
        "dotted); points are means over seeds."
    )
    return Drawing("validation-perplexity", "Validation perplexity", caption, made, data)


def _fed_back(arms: list[Arm], runs: Runs, key: str) -> Drawing | None:
    size = block_size(list(runs.values()))
    shown = [arm for arm in arms if key != "weight" or arm.train.get("fixed_weight") is None]  # the others never move
    curves = _curves(shown, runs, key, size)
    if not curves:
        return None
    made, axes = figures.figure(*SIZE)
    form = math.degrees if key == "angle" else float
    data = _draw_curves(axes, arms, curves, form)
    title, unit = {
        "weight": ("Mean learned weight of the feedback", "weight"),
        "angle": ("Angle between mask and predicted mean", "degrees"),
    }[key]
    name_axes(axes, title, "training step", unit)
    legend_below(axes)
    what = (
        "The learned weight, averaged over the masked positions that were fed back"
        if key == "weight"
        else "The angle between the mask embedding and the Fréchet mean of the candidates, averaged over positions"
    )
    return Drawing(key, title, f"{what}, {_blocks(size)}; {_lines(curves)}", made, data | {"block": size})


def _draw_curves(
    axes: Axes, arms: list[Arm], curves: Mapping[str, dict[int, Curve]], form: Any, *, band: bool = False
) -> dict[str, Any]:
    """A thin line for each seed (or a band over them), a thick one for their mean; returns what was drawn."""
    data: dict[str, Any] = {"arms": {}}
    style = looks(arms)
    for arm in arms:
        by_seed = curves.get(arm.name)
        if not by_seed:
            continue
        look = style[arm.name]
        steps, means = _mean_over_seeds(by_seed, form)
        drawn: dict[str, Any] = {"label": arm.label, "steps": steps, "mean": means, "seeds": _data(by_seed, form)}
        if band:
            drawn["half_width"] = _draw_band(axes, by_seed, steps, means, look)
        elif len(by_seed) > 1:
            for c in by_seed.values():
                axes.plot(c.steps, [form(value) for value in c.values], color=look.colour, lw=0.6, alpha=0.45)
        axes.plot(steps, means, color=look.colour, ls=look.dashes, lw=1.9, label=arm.label)
        data["arms"][arm.name] = drawn
    return data


def _draw_band(
    axes: Axes, by_seed: Mapping[int, Curve], steps: list[int], means: list[float], look: Look
) -> list[float | None]:
    halves = []
    for step in steps:
        halves.append(summarize([c.values[c.steps.index(step)] for c in by_seed.values()]).half_width)
    known = [i for i, half in enumerate(halves) if half is not None]
    low, high = ([means[i] + sign * (halves[i] or 0.0) for i in known] for sign in (-1, 1))
    axes.fill_between([steps[i] for i in known], low, high, color=look.colour, alpha=0.16, lw=0)
    return halves


def _mean_over_seeds(by_seed: Mapping[int, Curve], form: Any) -> tuple[list[int], list[float]]:
    """At the steps that every seed has."""
    shared = set.intersection(*(set(c.steps) for c in by_seed.values()))
    steps = [step for step in next(iter(by_seed.values())).steps if step in shared]
    tables = [dict(zip(c.steps, c.values, strict=True)) for c in by_seed.values()]
    return steps, [sum(form(table[step]) for table in tables) / len(tables) for step in steps]


def _data(by_seed: Mapping[int, Curve], form: Any) -> dict[str, Any]:
    return {str(seed): {"steps": c.steps, "values": [form(v) for v in c.values]} for seed, c in by_seed.items()}


def _blocks(size: int) -> str:
    return "step by step" if size == 1 else f"averaged over blocks of {size} steps"


def _lines(curves: Mapping[str, dict[int, Curve]]) -> str:
    most = max(len(by_seed) for by_seed in curves.values())
    return "one seed." if most == 1 else f"thin lines are the {count(most, 'seed')}, thick lines their means."
