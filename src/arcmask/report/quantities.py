"""The scores that an experiment has, each a column of its own: the same score by another evaluator is another one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from arcmask.evaluation.statistics import Summary, summarize
from arcmask.report.folder import Experiment, Score


@dataclass(frozen=True)
class Kind:
    """How a score is shown, and on what it depends so much that its values may not be mixed."""

    label: str
    digits: int
    better: Literal["lower", "higher"] | None
    depends: tuple[str, ...]
    meaning: str


KINDS = {
    "generative_perplexity": Kind(
        "Gen PPL",
        2,
        "lower",
        ("evaluator", "evaluator_sha256", "context", "stride", "start"),
        "perplexity of the samples under the evaluator",
    ),
    "entropy": Kind("Entropy", 4, None, ("tokenizer",), "entropy of the token frequencies within a sample, in nats"),
    "real_word_rate": Kind(
        "Real words", 4, "higher", ("reference",), "share of the generated words that occur in the reference text"
    ),
    "mauve": Kind("MAUVE", 4, "higher", ("features",), "MAUVE against the reference text"),
    "distinct_1": Kind("Distinct-1", 4, None, (), "share of different tokens"),
    "distinct_2": Kind("Distinct-2", 4, None, (), "share of different pairs of tokens"),
    "distinct_3": Kind("Distinct-3", 4, None, (), "share of different triples of tokens"),
    "repetition": Kind("Repetition", 4, None, (), "how much of the text repeats what stands before it"),
}
MAIN = ("generative_perplexity", "entropy", "real_word_rate", "mauve")
_ARROWS = {"lower": " \u2193", "higher": " \u2191", None: ""}


@dataclass(frozen=True)
class Quantity:
    """One column: a score, and what its values have in common."""

    score: str
    depends: tuple[tuple[str, Any], ...]
    note: str  # what to say beneath the label: the evaluator's name, for example
    digits: int

    @property
    def kind(self) -> Kind:
        """How it is shown."""
        return KINDS.get(self.score) or Kind(self.score.replace("_", " "), 4, None, (), self.score.replace("_", " "))

    @property
    def heading(self) -> str:
        """The label, with an arrow where one direction is better."""
        return self.kind.label + _ARROWS[self.kind.better]

    @property
    def label(self) -> str:
        """The label, with the evaluator where that matters."""
        return f"{self.kind.label} ({self.note})" if self.score == "generative_perplexity" else self.kind.label

    @property
    def slug(self) -> str:
        """A name for files."""
        name = self.score.replace("_", "-")
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.note.lower()).strip("-")
        return f"{name}-{plain}" if self.score == "generative_perplexity" else name


def quantities(experiment: Experiment, names: Iterable[str] | None = None) -> list[Quantity]:
    """All that occur, in the order of KINDS; those of `names` alone if they are given."""
    found: dict[Quantity, None] = {}
    known = list(KINDS)
    for scores in experiment.scores.values():
        for name, score in scores.items():
            found[_quantity(name, score)] = None
    wanted = [q for q in found if names is None or q.score in names]
    named = [
        _told_apart(q, [other for other in wanted if (other.score, other.note) == (q.score, q.note)]) for q in wanted
    ]
    if experiment.is_paper:  # at its size MAUVE is near 0.01
        named = [replace(q, digits=5) if q.score == "mauve" else q for q in named]
    return sorted(named, key=lambda q: (known.index(q.score) if q.score in known else len(known), q.note))


def _quantity(name: str, score: Score) -> Quantity:
    keys = KINDS[name].depends if name in KINDS else ()
    depends = tuple((key, score.details.get(key)) for key in keys)
    note = str(score.details.get(keys[0]) or "") if keys else ""
    return Quantity(name, depends, note, KINDS[name].digits if name in KINDS else 4)


def _told_apart(quantity: Quantity, alike: list[Quantity]) -> Quantity:
    """Two evaluators of one name are known by their content, or by the settings in which they differ."""
    others = [dict(other.depends) for other in alike]
    differing = [(key, value) for key, value in quantity.depends if any(other[key] != value for other in others)]
    parts = [str(value)[:8] if key.endswith("sha256") else f"{key} {value}" for key, value in differing]
    return replace(quantity, note=", ".join([quantity.note, *parts]))


def values(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> dict[int, Score]:
    """By seed; seeds without this very quantity are left out."""
    found = {}
    for seed in experiment.seeds:
        score = experiment.scores.get((arm, seed, budget), {}).get(quantity.score)
        if score is not None and _quantity(quantity.score, score).depends == quantity.depends:
            found[seed] = score
    return found


@dataclass(frozen=True)
class Point:
    """An arm at a budget, over seeds: the summary, and an interval with what it is over."""

    summary: Summary
    interval: tuple[float, float] | None
    over: Literal["seeds", "samples"] | None
    seeds: list[int]


def point(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> Point | None:
    """Over seeds, Student's t; with one seed, that seed's bootstrap over samples."""
    found = values(experiment, quantity, arm, budget)
    if not found:
        return None
    summary = summarize([score.value for score in found.values()])
    if summary.half_width is not None:
        spread = (summary.mean - summary.half_width, summary.mean + summary.half_width)
        return Point(summary, spread, "seeds", list(found))
    bootstrap = next(iter(found.values())).interval
    return Point(summary, bootstrap, None if bootstrap is None else "samples", list(found))


# The bounds of likelihood.json; they have no budget.
BOUNDS = {
    "two_pass": ("as used", "with feedback where the arm has it: the two-pass bound"),
    "plain": ("plain", "without feedback"),
}


def bounds(experiment: Experiment, arm: str, way: str, key: str = "nats") -> dict[int, float]:
    """By seed, the held-out bound in nats a token (or another key of it). An arm without feedback is used plain."""
    found = {}
    for seed in experiment.seeds:
        entry = experiment.likelihoods.get((arm, seed), {})
        chosen = entry.get(way) or (entry.get("plain") if way == "two_pass" else None)
        if chosen and chosen.get(key) is not None:
            found[seed] = float(chosen[key])
    return found
