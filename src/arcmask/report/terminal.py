"""What `arcmask reproduce` prints at its end: means with intervals, and the paired differences, in 80 columns."""

from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from arcmask.errors import ArcmaskError
from arcmask.report.comparisons import Comparison, about_the_number, comparisons, pairs
from arcmask.report.folder import Experiment, open_run
from arcmask.report.quantities import MAIN, Quantity, point, quantities
from arcmask.report.wording import NONE, p_value, plus_minus

_STYLES = {"better": "green", "worse": "red"}


def terminal_table(folder: str | Path) -> Group:
    """The means and the differences of an experiment, for `rich.print`; and what is missing of it."""
    experiment = open_run(Path(folder))
    if not isinstance(experiment, Experiment):
        raise ArcmaskError(f"{folder} is a training run; a table needs an experiment of arms, seeds and budgets")
    found = comparisons(experiment)
    shown: list[RenderableType] = []
    if experiment.scores:
        shown += [_means(experiment), Text()]
    if found:
        shown += [_differences(experiment, found), Text(about_the_number(found), style="dim"), Text()]
    shown += [Text(f"not there: {line}", style="yellow") for line in experiment.missing()]
    return Group(*shown)


def _means(experiment: Experiment) -> Table:
    scores = quantities(experiment, MAIN)
    evaluators = ", ".join(dict.fromkeys(q.note for q in scores if q.score == "generative_perplexity"))
    title = "mean \u00b1 half the width of its 95 % interval over seeds"
    made = _table(title + (f"; generative perplexity by {evaluators}" if evaluators else ""))
    made.add_column("arm")
    made.add_column("T", justify="right")
    for quantity in scores:
        made.add_column(_heading(quantity, scores), justify="right", no_wrap=True)
    for arm in experiment.arms.values():
        for budget in experiment.budgets:
            cells = [_mean(experiment, quantity, arm.name, budget) for quantity in scores]
            made.add_row(Text(arm.label if budget == experiment.budgets[0] else ""), str(budget), *cells)
        made.add_section()
    return made


def _heading(quantity: Quantity, scores: list[Quantity]) -> Text:
    """With the evaluator, if there are two of them."""
    alone = sum(q.score == quantity.score for q in scores) == 1
    return Text(quantity.heading if alone else f"{quantity.heading}\n{quantity.note}")


def _mean(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> Text:
    at = point(experiment, quantity, arm, budget)
    if at is None:
        return Text(NONE, style="dim")
    return Text(_tight(plus_minus(at.summary.mean, at.summary.half_width, quantity.digits)))


def _differences(experiment: Experiment, found: list[Comparison]) -> Table:
    made = _table("paired differences, seed by seed, with their 95 % intervals")
    made.add_column("first \u2212 second")
    for budget in experiment.budgets:
        made.add_column(f"T = {budget}", justify="right")
    made.add_column("held out", justify="right")
    for pair in pairs(experiment):
        mine = [c for c in found if c.pair == pair and c.score != "bound_plain"]
        if not mine:
            continue
        made.add_row(Text(pair.label, style="bold"))
        for label in dict.fromkeys(c.label for c in mine):
            by_budget = {c.budget: c for c in mine if c.label == label}
            places = [*experiment.budgets, None]
            cells = [_difference(by_budget[place]) if place in by_budget else Text() for place in places]
            made.add_row(Text(label.split(" (")[0].split(",")[0]), *cells)
        made.add_section()
    return made


def _difference(comparison: Comparison) -> Text:
    text = Text(_tight(comparison.value))
    reading, p = comparison.reading, p_value(comparison.difference.p_value).replace(" ", "")
    under = {"no difference seen": "none seen", "no interval": "one seed"}.get(reading, f"{reading}, {p}")
    return text.append("\n" + under, style=_STYLES.get(reading, "dim"))


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def _tight(text: str) -> str:
    return text.replace(" \u00b1 ", " \u00b1")
