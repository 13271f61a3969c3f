"""Write the tables of README.md and draw its figures, from what the scripts of this folder have measured.

python docs/results/page.py

A table stands between `<!-- table: TITLE -->` and `<!-- end -->`.
"""

from typing import Any

import antibody
import factorial_tables
import numpy as np
import training_free
import turns
from factorial import BOUND_WEIGHTS, OPERATORS, SAMPLE_SETTINGS, TEMPERATURES
from factorial_tables import (
    DIVERSITY,
    EFFECTS,
    MODELS,
    SPHERE,
    Question,
    bound_change,
    effects,
    pooled,
    questions,
    seeds_of,
)
from measured import HERE, read_cells

from arcmask import figures
from arcmask.diagnostics import drawing
from arcmask.files import write_whole

SHOWN = BOUND_WEIGHTS[:-1]  # at the largest weight, changes are so large that they hide the others
COLOURS = {"own": "#e07b28", "mask": "#1f6fb2"}  # by norm
LINES = {"chord": "-", "arc": "--"}
SHADES = ("#9ecae1", "#4a90c4", "#12507f", "#2e9e77", "#e07b28", "#8e5ea2", "#b23a48")  # of the measures
ARM_STYLES = {  # colour for the operator, marker for the training
    "linear-tuned": (COLOURS["own"], "o"),
    "spherical-tuned": (COLOURS["mask"], "o"),
    "none": (figures.MUTED, "^"),
    "linear-0.3": (COLOURS["own"], "^"),
    "spherical-0.3": (COLOURS["mask"], "^"),
}
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
    canvas, panels = figures.panels(12.0, 4.6, len(models))
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
        diversity = DIVERSITY[model]
        plain = np.array([pooled(model, f"none {one}", seeds, diversity) for one in TEMPERATURES])
        axes.plot(*plain.T, color=figures.MUTED, marker="s", markersize=4, linewidth=1.2, label="plain, 4 temperatures")
        for (x, y), temperature in zip(plain, TEMPERATURES, strict=True):
            axes.annotate(f"{temperature:g}", (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
        for levels, name in OPERATORS.items():
            points = np.array([pooled(model, f"{name} {setting}", seeds, diversity) for setting in SAMPLE_SETTINGS[:3]])
            axes.plot(*points[:2].T, **style_of(levels), markersize=5, label=label_of(levels))
            axes.plot(*points[2:].T, **style_of(levels) | {"linestyle": "none"}, markersize=6, fillstyle="none")
            if name == "linear":
                for point, setting in zip(points, SAMPLE_SETTINGS, strict=False):
                    label = "fitted" if setting == "tuned" else f"{setting:g}"
                    axes.annotate(label, point, xytext=(7, -2), textcoords="offset points", fontsize=8)
        axes.set_title(f"{model}, {len(seeds)} seeds")
        is_words = model == "sotu-tiny"
        axes.set_xlabel("entropy of a sample, nats" if is_words else "share of residues in which samples differ")
        axes.set_ylabel("real words, % (higher is better)" if is_words else "NLL per residue, nats (lower is better)")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save(canvas, "factorial-samples.png")


@figures.styled()
def draw_effects(rows: list[Question]) -> None:
    """Draw each effect on the bound with its 95 % interval, a panel for each model."""
    found = effects(rows)
    models = [*MODELS, SPHERE]
    canvas, panels = figures.panels(12.0, 4.2, len(models))
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
        axes.set_yticks(-np.arange(len(EFFECTS)), list(EFFECTS.values()) if axes is panels[0] else [""] * len(EFFECTS))
        axes.set_title(model)
        axes.set_xlabel("nats per token; above 0 is worse")
    most = max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    canvas.legend(*most.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    save(canvas, "factorial-effects.png")


@figures.styled()
def draw_antibody() -> None:
    """Draw quality against spread of the recipe's samples, a panel for each number of denoising steps.

    A line is a model at four temperatures; that of a trained model is drawn where it was measured.
    """
    canvas, panels = figures.panels(11.0, 4.4, len(antibody.BUDGETS))
    seeds = antibody.seeds()
    for axes, budget in zip(panels, antibody.BUDGETS, strict=True):
        plain = np.array([antibody.point(name, seeds) for name in antibody.line("base", budget)])
        axes.plot(*plain.T, color=figures.INK, marker="s", markersize=4, linewidth=1.2, label=antibody.ARMS["base"])
        for arm, (colour, marker) in ARM_STYLES.items():
            has_line = arm in antibody.TRAINED and budget == antibody.BUDGET
            names = antibody.line(arm) if has_line else [f"{arm} {{}} {budget}"]
            points = np.array([antibody.point(name, seeds) for name in names])
            axes.plot(*points.T, color=colour, marker=marker, markersize=6, linewidth=1.2, label=antibody.ARMS[arm])
        axes.set_title(f"T = {budget}, {len(seeds)} seeds")
        axes.set_xlabel("share of residues\nin which samples differ")
        axes.set_ylabel("NLL per residue, nats (lower is better)" if budget == antibody.BUDGETS[0] else "")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    save(canvas, "antibody.png")


@figures.styled()
def draw_turns() -> None:
    """Draw the turn of the mask against the entropy of the prediction, a panel for each model."""
    cells = read_cells("turns")
    canvas, panels = figures.panels(9.0, 3.6, len(cells))
    for axes, (model, cell) in zip(panels, cells.items(), strict=True):
        entropy, _, lerp, slerp = zip(*(row[1:] for row in cell["bins"]), strict=True)
        for name, values, operator in (("LERP", lerp, "linear"), ("SLERP", slerp, "spherical-euclidean")):
            axes.plot(entropy, values, color=figures.colour(operator), marker="o", markersize=4.5, label=name)
        axes.set_ylim(0, 35)
        axes.set_title(model)
        axes.set_xlabel("entropy of the prediction, nats")
        axes.set_ylabel("turn of the mask, degrees")
    panels[0].legend(loc="lower left")
    save(canvas, "turns.png")


def tables() -> dict[str, list[str]]:
    """Return every table of the page by its title, as lines of markdown."""
    return factorial_tables.tables() | antibody.tables() | turns.tables() | training_free.tables()


def filled(page: str, found: dict[str, list[str]]) -> str:
    """Return a page with these tables in place of those that it has."""
    for title, lines in found.items():
        begin = f"<!-- table: {title} -->"
        if begin in page:
            before, _, rest = page.partition(begin)
            page = "\n".join([f"{before}{begin}", "", *lines, "", f"<!-- end -->{rest.partition('<!-- end -->')[2]}"])
    return page


def main() -> None:
    """Write the tables and draw the figures."""
    path = HERE / "README.md"
    write_whole(path, filled(path.read_text(), tables()).encode())
    rows = questions()
    draw_bound([*MODELS, SPHERE])
    draw_samples(rows)
    draw_effects(rows)
    draw_antibody()
    draw_turns()
    save(drawing.draw(training_free.curve()), "quality-against-entropy.png")


if __name__ == "__main__":
    main()
