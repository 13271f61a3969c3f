"""The conclusion: two sentences with numbers, at the top of the page and first in the terminal.

The first says what feedback gains in the base model as it is, the second what training with feedback gains over the
same training without it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arcmask.report.comparisons import Comparison, headlines, is_gain_of_training
from arcmask.report.folder import Arm, Experiment
from arcmask.report.quantities import AS_USED, HEADLINES, Headline

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
    def predicate(self) -> str:
        """The effect in words, without its subject."""
        name = f"{self.quantity.meaning}{self.condition}"
        if abs(self.difference) <= self.half_width:
            return f"shows no difference in {name} ({self._number(self.difference, signed=True)})"
        verb = "lowers" if self.difference < 0 else "raises"
        return f"{verb} {self.quantity.meaning} by {self._number(abs(self.difference))}{self.condition}"

    def _number(self, value: float, *, signed: bool = False) -> str:
        return f"{self.quantity.text(value, self.half_width, signed=signed)} {self.quantity.unit}".strip()


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


def sentence(opening: str, effects: Sequence[Effect]) -> str:
    """Return the effects as one sentence without its full stop; empty without effects. A subject is not repeated."""
    text, subject = opening, ""
    for effect in effects:
        link = " and" if effect.subject == subject else f", and {effect.subject}" if subject else f", {effect.subject}"
        text, subject = f"{text}{link} {effect.predicate}", effect.subject
    return text if effects else ""


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
        effects = [
            Effect(_arm(c.pair.first), HEADLINES[c.score], c.difference.mean, half, _at(c.budget))
            for c in rows
            if is_gain_of_training(c.pair) and (half := c.difference.half_width) is not None
        ]
        best.setdefault(rows[0].score, _best(effects, rows[0].better))
    generation = next((best[score] for score in _GENERATION if best.get(score)), [])
    return best.get(AS_USED, []) + generation


def _best(effects: list[Effect], better: str | None) -> list[Effect]:
    """Return the effect with the best difference, or nothing."""
    return sorted(effects, key=lambda effect: effect.difference, reverse=better == "higher")[:1]


def _feedback(operator: str, weight: float) -> str:
    return f"{operator} feedback at weight {weight:g}"


def _arm(arm: Arm) -> str:
    return f"the arm \u201c{arm.label}\u201d"


def _at(budget: int | None) -> str:
    return "" if budget is None else f" at T = {budget}"
