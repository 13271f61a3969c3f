"""The conclusion: two sentences with numbers, at the top of the page and first in the terminal.

The first says what feedback gains in the base model as it is, the second what training with feedback gains over the
same training without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from arcmask.report.comparisons import (
    Comparison,
    at_largest_budget,
    cost_of_training,
    headlines,
    is_gain_of_training,
)
from arcmask.report.folder import Experiment
from arcmask.report.quantities import AS_USED, HEADLINES, Headline, headline

_GENERATION = ("real_word_rate", "generative_perplexity")  # the first of these that was measured


@dataclass(frozen=True)
class Effect:
    """How a subject changes a quantity: a difference, and half the width of its 95 % confidence interval."""

    subject: str
    quantity: Headline
    difference: float
    half_width: float
    condition: str = ""

    @property
    def verb(self) -> str:
        """What the interval says: lowers, raises, or neither."""
        if abs(self.difference) <= self.half_width:
            return "shows no difference in"
        return "lowers" if self.difference < 0 else "raises"

    @property
    def object(self) -> str:
        """The quantity and its difference, to follow the verb."""
        name, unit = self.quantity.meaning, f" {self.quantity.unit}".rstrip()
        if abs(self.difference) <= self.half_width:
            number = self.quantity.text(self.difference, self.half_width, signed=True)
            return f"{name}{self.condition} ({number}{unit})"
        return f"{name} by {self.quantity.text(abs(self.difference), self.half_width)}{unit}{self.condition}"


def conclusion(experiment: Experiment, compared: list[Comparison]) -> str:
    """Return both sentences, or the one for which there are results, or nothing."""
    curves = experiment.inspected
    untrained = bound_effect(curves.get("gain")) + generation_effect(curves.get("generation"))
    trained = training_effects(headlines(experiment, compared).values())
    sentences = [
        sentence("Without training", untrained),
        sentence("Compared with the same training without feedback", trained),
    ]
    text = "; ".join([". ".join(filter(None, sentences)), "\u00b1 is a 95 % confidence interval."])
    return text if untrained or trained else ""


def training_note(experiment: Experiment, compared: list[Comparison]) -> str:
    """Say what training without feedback changes in the base, or nothing if the headlines say it."""
    measured = at_largest_budget(experiment, compared, cost_of_training(experiment))
    text = sentence("Compared with the base", _effects(measured, "the trained arm"))
    return f"{text}." if text else ""


def sentence(opening: str, effects: Sequence[Effect]) -> str:
    """Return the effects as one sentence without its full stop; empty without effects. Equal words are not repeated."""
    if not effects:
        return ""
    text = f"{opening}, {effects[0].subject} {effects[0].verb} {effects[0].object}"
    for last, effect in pairwise(effects):
        if effect.subject != last.subject:
            text += f", and {effect.subject} {effect.verb} {effect.object}"
        elif effect.verb != last.verb:
            text += f" and {effect.verb} {effect.object}"
        else:
            text += f" and {effect.object}"
    return text


def bound_effect(curve: Mapping[str, Any] | None) -> list[Effect]:
    """Return the effect of the best operator and weight on the bound, from the data of the gain curve."""
    if curve is None:
        return []
    effects = [
        Effect(_feedback(name, weight), HEADLINES[AS_USED], difference, half_width)
        for name, row in curve["difference"].items()
        for weight, difference, half_width in zip(curve["weights"], row, curve["half_width"][name], strict=True)
        if weight > 0 and half_width is not None
    ]
    return _best(effects, "lower")


def generation_effect(curve: Mapping[str, Any] | None) -> list[Effect]:
    """Return the effect of the best operator and weight on samples, from the data of the generation curve."""
    if curve is None:
        return []
    name, unit = str(curve["quality"]), str(curve["unit"])
    meaning = f"the share of {name.removesuffix(' (%)')}" if name.endswith(" (%)") else f"the {name}"
    quantity = Headline(name, meaning, unit, digits=1 if unit == "points" else 3)
    effects = [
        Effect(_feedback(operator, at["setting"]), quantity, at["gain"], at["gain_half_width"], " at equal entropy")
        for operator, points in curve["operators"].items()
        for at in points
        if at["gain"] is not None
    ]
    return _best(effects, curve["better"])


def training_effects(compared: Iterable[list[Comparison]]) -> list[Effect]:
    """Return the effect of the best arm on the bound and on samples, from the comparisons in each quantity."""
    best: dict[str, list[Effect]] = {}
    for rows in compared:
        effects = _effects(c for c in rows if is_gain_of_training(c.pair))
        best.setdefault(rows[0].score, _best(effects, rows[0].better))
    generation = next((best[score] for score in _GENERATION if best.get(score)), [])
    return best.get(AS_USED, []) + generation


def _effects(compared: Iterable[Comparison], noun: str = "the arm") -> list[Effect]:
    """Return the effects of the comparisons that have an interval."""
    return [
        Effect(
            f"{noun} \u201c{c.pair.first.label}\u201d",
            headline(c.score, c.digits),
            c.difference.mean,
            half,
            _at(c.budget),
        )
        for c in compared
        if (half := c.difference.half_width) is not None
    ]


def _best(effects: list[Effect], better: str | None) -> list[Effect]:
    """Return the effect with the best difference, or nothing."""
    return sorted(effects, key=lambda effect: effect.difference, reverse=better == "higher")[:1]


def _feedback(operator: str, weight: float) -> str:
    return f"{operator} feedback at weight {weight:g}"


def _at(budget: int | None) -> str:
    return "" if budget is None else f" at T = {budget}"
