"""Draw the training of all arms and seeds: perplexity, the learned weight and the angle over steps."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from arcmask import figures
from arcmask.diagnostics.curves import Curve, block_means, block_size, draw_curves, mean_curve
from arcmask.report.figure import SIZE, Drawing, legend_below, looks, name_axes
from arcmask.report.folder import Arm, Experiment, Training
from arcmask.report.wording import count

Runs = Mapping[tuple[str, int], Training]  # by arm and seed
ByArm = dict[str, dict[int, Curve]]  # the curves of a metric by arm and seed
_NOISE = ("data", "seed", "batch_size")  # the settings that data order, times, masks and gates depend on
_FED_BACK: dict[str, tuple[str, str, Callable[[float], float], str]] = {
    "weight": (
        "Mean learned weight of the feedback", "weight", float,
        "The learned weight, averaged over the masked positions with feedback",
    ),
    "angle": (
        "Angle between mask and predicted mean", "degrees", math.degrees,
        "The angle between the mask and the Fréchet mean of the candidates, averaged over positions",
    ),
}  # fmt: skip


def training_figures(arms: list[Arm], runs: Runs, baseline: str | None = None) -> list[Drawing]:
    """Return the figures for which the metrics have values."""
    block = block_size(max((run.done for run in runs.values()), default=1))
    drawings = [
        _perplexity(arms, runs, block),
        None if baseline is None else _against_baseline(arms, runs, block, baseline),
        _validation(arms, runs),
        *(_fed_back(arms, runs, block, key) for key in _FED_BACK),
    ]
    return [drawing for drawing in drawings if drawing is not None]


def experiment_figures(experiment: Experiment) -> list[Drawing]:
    """Return the figures of all training runs of an experiment."""
    arms = list(experiment.arms.values())
    baseline = experiment.baseline
    if baseline is not None and experiment.arms[baseline].kind != "trained":  # then against training without feedback
        baseline = next((arm.name for arm in arms if arm.kind == "trained" and not arm.has_feedback), None)
    return training_figures(arms, experiment.trainings, baseline)


def run_figures(runs: Mapping[str, Training]) -> list[Drawing]:
    """Return the figures of one training run, or of several over each other, by name.

    Runs with the same data, seed and batch size share their noise, so that their difference is drawn as well.
    """
    arms = [_run_arm(name, training) for name, training in runs.items()]
    shared = {tuple(str(training.settings.get(key)) for key in _NOISE) for training in runs.values()}
    baseline = arms[0].name if len(arms) > 1 and len(shared) == 1 else None
    by_seed = {(name, int(training.settings.get("seed", 0))): training for name, training in runs.items()}
    return training_figures(arms, by_seed, baseline)


def _run_arm(name: str, training: Training) -> Arm:
    arm = Arm(name, name, training.settings)
    return arm if name == arm.operator else replace(arm, label=f"{name} ({arm.operator})")


def _curves(arms: list[Arm], runs: Runs, key: str, block: int, form: Callable[[float], float] = float) -> ByArm:
    by_arm: ByArm = {arm.name: {} for arm in arms}
    for (arm, seed), training in runs.items():
        curve = block_means(training.records, key, block)
        if arm in by_arm and curve:
            by_arm[arm][seed] = {step: form(value) for step, value in curve.items()}
    return {arm: by_seed for arm, by_seed in by_arm.items() if by_seed}


def _draw(
    name: str, title: str, unit: str, arms: list[Arm], curves: ByArm, block: int, caption: str, *, band: bool = False
) -> Drawing:
    """Draw the curves of every arm; a caption with {lines} and {blocks} describes the lines and the averaging."""
    canvas, axes = figures.figure(*SIZE)
    style, data = looks(arms), {}
    for arm in arms:
        if arm.name in curves:
            by_seed, look = curves[arm.name], style[arm.name]
            lines = list(by_seed.values())
            drawn = draw_curves(axes, lines, arm.label, colour=look.colour, dashes=look.dashes, band=band)
            data[arm.name] = drawn | {"seeds": _data(by_seed)}
    name_axes(axes, title, "training step", unit)
    legend_below(axes)
    seeds = max(len(by_seed) for by_seed in curves.values())
    caption = caption.format(
        blocks="step by step" if block == 1 else f"averaged over blocks of {block} steps",
        lines="one seed" if seeds == 1 else f"thin lines are the {count(seeds, 'seed')}, thick lines their means",
    )
    return Drawing(name, title, caption, canvas, {"arms": data, "block": block})


def _data(by_seed: Mapping[int, Curve]) -> dict[str, Any]:
    return {str(seed): {"steps": list(curve), "values": list(curve.values())} for seed, curve in by_seed.items()}


def _perplexity(arms: list[Arm], runs: Runs, block: int) -> Drawing | None:
    curves = _curves(arms, runs, "nll", block, math.exp)
    if not curves:
        return None
    caption = "Perplexity of the training loss, {blocks}; {lines}."
    drawing = _draw("training-perplexity", "Training perplexity", "PPL", arms, curves, block, caption)
    values = [value for by_seed in curves.values() for curve in by_seed.values() for value in curve.values()]
    if max(values) > 4 * min(values):
        (axes,) = drawing.figure.axes
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    return drawing


def _against_baseline(arms: list[Arm], runs: Runs, block: int, baseline: str) -> Drawing | None:
    """Draw differences at equal seed. Arms share data, times, masks and gates for a seed, so their noise cancels."""
    curves = _curves(arms, runs, "nll", block)
    base = curves.pop(baseline, {})
    differences: ByArm = {}
    for arm, by_seed in curves.items():
        for seed, curve in by_seed.items():
            shared = {step: value - base[seed][step] for step, value in curve.items() if step in base.get(seed, {})}
            if shared:
                differences.setdefault(arm, {})[seed] = shared
    if not differences:
        return None
    caption = (
        "Training NLL minus that of the baseline at equal seed and step, {blocks}. The noise that the arms share "
        "cancels."
    )
    if max(map(len, differences.values())) > 1:
        caption += " The line is the mean over seeds, the band its 95 % confidence interval."
    label = next(arm.label for arm in arms if arm.name == baseline)
    title = f"Training NLL minus that of \u201c{label}\u201d"
    drawing = _draw("training-difference", title, "nats per token", arms, differences, block, caption, band=True)
    drawing.figure.axes[0].axhline(0, color=figures.MUTED, lw=1, zorder=0)
    return drawing


def _validation(arms: list[Arm], runs: Runs) -> Drawing | None:
    canvas, axes = figures.figure(*SIZE)
    data: dict[str, dict[str, Any]] = {}
    style = looks(arms)
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("feedback", "two-pass", {"ls": "-"}),
        ("plain", "plain", {"ls": (0, (1.5, 1.5)), "mfc": "none"}),
    )
    for key, short, line in kinds:
        curves = _curves(arms, runs, f"validation_nll_{key}", 1, math.exp)
        for arm in arms:
            if arm.name in curves:
                mean, look = mean_curve(list(curves[arm.name].values())), style[arm.name]
                line |= {"color": look.colour, "marker": look.marker, "ms": 4, "lw": 1.5}
                axes.plot(list(mean), list(mean.values()), label=f"{arm.label}, {short}", **line)
                data.setdefault(arm.name, {"label": arm.label})[key] = _data(curves[arm.name])
    if not data:
        return None
    name_axes(axes, "Validation perplexity", "training step", "PPL")
    legend_below(axes)
    caption = (
        "Perplexity on held-out rows with averaged weights, with feedback (two-pass, solid) and without (plain, "
        "dotted)."
    )
    if len(runs) > len({arm for arm, _ in runs}):
        caption += " Points are means over seeds."
    return Drawing("validation-perplexity", "Validation perplexity", caption, canvas, {"arms": data})


def _fed_back(arms: list[Arm], runs: Runs, block: int, key: str) -> Drawing | None:
    title, unit, form, caption = _FED_BACK[key]
    shown = [arm for arm in arms if key != "weight" or arm.train.get("fixed_weight") is None]  # a fixed weight is flat
    curves = _curves(shown, runs, key, block, form)
    return _draw(key, title, unit, arms, curves, block, caption + ", {blocks}; {lines}.") if curves else None
