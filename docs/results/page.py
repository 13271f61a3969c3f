"""Draw the figures of what factorial.py has measured: the bound, the samples, and the effects of the ingredients.

python docs/results/factorial_figures.py
"""

from typing import Any

import numpy as np
from factorial import BOUND_WEIGHTS, HERE, OPERATORS, SAMPLE_WEIGHTS, TEMPERATURES
from factorial_tables import (
    DIVERSITY,
    EFFECTS,
    MODELS,
    Question,
    bound_change,
    effects_table,
    pooled,
    questions,
    seeds_of,
)

from arcmask import figures

SHOWN = BOUND_WEIGHTS[:-1]  # at the largest weight, changes are so large that they hide the others
COLOURS = {"own": "#e07b28", "mask": "#1f6fb2"}  # by norm
LINES = {"chord": "-", "arc": "--"}
SHADES = ("#9ecae1", "#4a90c4", "#12507f", "#2e9e77", "#e07b28", "#8e5ea2", "#b23a48")  # of the measures
MARKERS = {"Euclidean": "o", "Fréchet": "^"}


def style_of(levels: tuple[str, str, str]) -> dict[str, Any]:
    """Return how an operator is drawn: colour for the norm, line for the path, marker for the mean."""
    mean, path, norm = levels
    return {"color": COLOURS[norm], "linestyle": LINES[path], "marker": MARKERS[mean], "linewidth": 1.4}


def label_of(levels: tuple[str, str, str]) -> str:
    """Return the ingredients and the operator's name."""
    mean, path, norm = levels
    return f"{mean}, {path}, {norm} norm ({OPERATORS[levels]})"


def save(canvas: figures.Figure, name: str) -> None:
    """Write a figure beside this file. Without the software's version, equal data give equal bytes."""
    with figures.styled():
        canvas.savefig(HERE / name, dpi=150, metadata={"Software": None})


@figures.styled()
def draw_bound(models: list[str]) -> None:
    """Draw the change of the bound against the weight, a panel for each model."""
    canvas, panels = figures.panels(9.0, 4.6, len(models))
    for axes, model in zip(panels, models, strict=True):
        seeds = seeds_of("bound", model, [""])
        for levels, name in OPERATORS.items():
            values = [0.0, *(bound_change(model, at)(seeds)[name] for at in range(len(SHOWN)))]
            axes.plot([0.0, *SHOWN], values, **style_of(levels), markersize=4.5, label=label_of(levels))
        axes.axhline(0, color=figures.MUTED, linewidth=0.8)
        axes.set_title(f"{model}, {len(seeds)} seeds")
        axes.set_xlabel("weight of the feedback")
        axes.set_ylabel("change of the bound, nats per token")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(canvas, "factorial-bound.png")


@figures.styled()
def draw_samples(rows: list[Question]) -> None:
    """Draw quality against diversity: a line for plain sampling, a point for each operator and weight."""
    measured = {row.model: row.seeds for row in rows if row.label.startswith("samples")}
    if not measured:
        return
    canvas, panels = figures.panels(9.0, 4.6, len(measured))
    for axes, (model, seeds) in zip(panels, measured.items(), strict=True):
        diversity = DIVERSITY[model][0]
        plain = np.array([pooled(model, f"none {one}", seeds, diversity) for one in TEMPERATURES])
        axes.plot(*plain.T, color=figures.MUTED, marker="s", markersize=4, linewidth=1.2, label="plain, 4 temperatures")
        for (x, y), temperature in zip(plain, TEMPERATURES, strict=True):
            axes.annotate(f"{temperature:g}", (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
        for levels, name in OPERATORS.items():
            points = np.array([pooled(model, f"{name} {weight}", seeds, diversity) for weight in SAMPLE_WEIGHTS])
            axes.plot(*points.T, **style_of(levels), markersize=5, label=label_of(levels))
        axes.set_title(f"{model}, {len(seeds)} seeds, weights 0.3 and 0.5")
        is_words = model == "sotu-tiny"
        axes.set_xlabel("entropy of a sample, nats" if is_words else "share of residues in which samples differ")
        axes.set_ylabel("real words, % (higher is better)" if is_words else "NLL per residue, nats (lower is better)")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(canvas, "factorial-samples.png")


@figures.styled()
def draw_effects(rows: list[Question]) -> None:
    """Draw each effect on the bound with its 95 % interval, a panel for each model."""
    found = effects_table(rows)[1]
    models = [model for model in MODELS if any(row.model == model for row in rows)]
    canvas, panels = figures.panels(9.0, 4.2, len(models))
    for axes, model in zip(panels, models, strict=True):
        measures = [row.label for row in rows if row.model == model and row.label.startswith("bound")]
        for index, measure in enumerate(measures):
            estimates = [found[model, measure, name] for name in EFFECTS]
            heights = -np.arange(len(EFFECTS)) - 0.13 * (index - (len(measures) - 1) / 2)
            axes.errorbar(
                [one.value for one in estimates],
                heights,
                xerr=[one.half_width for one in estimates],
                fmt="os^DvpX"[index],
                markersize=4.5,
                linewidth=1.2,
                color=SHADES[index],
                label=measure,
            )
        axes.axvline(0, color=figures.MUTED, linewidth=0.8)
        axes.set_yticks(-np.arange(len(EFFECTS)), list(EFFECTS.values()))
        axes.set_title(model)
        axes.set_xlabel("nats per token; above 0 is worse")
    most = max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    canvas.legend(*most.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    save(canvas, "factorial-effects.png")


def main() -> None:
    """Draw what was measured."""
    rows = questions()
    draw_bound([model for model in MODELS if len(seeds_of("bound", model, [""])) > 2])
    draw_samples(rows)
    draw_effects(rows)


if __name__ == "__main__":
    main()
