"""The columns of the tables: scores by evaluator, held-out bounds, and their mean and interval over seeds.

The same score by another evaluator, tokenizer or reference is another quantity, so that they are never mixed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from arcmask.evaluation.statistics import Summary, summarize
from arcmask.report.folder import Experiment, Score
from arcmask.report.wording import plus_minus, slug

Direction = Literal["lower", "higher"]


@dataclass(frozen=True)
class Kind:
    """How a score is shown, and the settings that its values must share to be comparable."""

    label: str
    meaning: str
    better: Direction | None = None
    depends: tuple[str, ...] = ()
    digits: int = 4


KINDS = {
    "generative_perplexity": Kind(
        "Gen PPL",
        "perplexity of the samples under the evaluator",
        "lower",
        ("evaluator", "evaluator_sha256", "context", "stride", "start"),
        digits=2,
    ),
    "entropy": Kind("Entropy", "entropy of the token frequencies within a sample, in nats", None, ("tokenizer",)),
    "distinct_samples": Kind("Distinct", "share of distinct samples"),
    "nearest": Kind("Nearest", "edits between a sample and the nearest training row", None, ("data", "rows"), digits=2),
    "real_word_rate": Kind(
        "Real words", "share of the generated words that occur in the reference text", "higher", ("reference",)
    ),
    "mauve": Kind("MAUVE", "MAUVE against the reference text", "higher", ("features",)),
    "mauve_over_seeds": Kind(
        "MAUVE, k-means seeds",
        "MAUVE against the reference text, the mean over several seeds of its clustering",
        "higher",
        ("features",),
    ),
    "distinct_1": Kind("Distinct-1", "share of distinct tokens"),
    "distinct_2": Kind("Distinct-2", "share of distinct token pairs"),
    "distinct_3": Kind("Distinct-3", "share of distinct token triples"),
    "repetition": Kind("Repetition", "share of the text that repeats earlier text"),
}
DIVERSITY = ("entropy", "distinct_samples", "nearest")  # what a good score must be read beside
MAIN = ("generative_perplexity", *DIVERSITY, "real_word_rate", "mauve")
FURTHER = "mauve_over_seeds"  # a column beside the main scores, which is not compared: it is MAUVE once more
BOUNDS = {"two_pass": "as used", "plain": "plain"}  # the bounds of likelihood.json, which have no budget


@dataclass(frozen=True)
class Headline:
    """How a quantity is written where space is short: in the conclusion, the forest plot and the terminal."""

    title: str
    meaning: str
    unit: str = ""
    digits: int = 3
    scale: float = 1.0  # from the stored values to the unit

    def text(self, value: float, half_width: float | None, *, signed: bool = False) -> str:
        """Return value ± half width in the unit; from a thousand on without decimals."""
        value, half = value * self.scale, None if half_width is None else half_width * self.scale
        digits = self.digits if max(abs(value), half or 0.0) < 1000 else 0
        return plus_minus(value, half, digits, signed=signed)


AS_USED = "bound_two_pass"  # the score of the held-out bound with an arm's own feedback
# By the score of a comparison, in the order in which they are shown.
HEADLINES = {
    AS_USED: Headline("Held-out NLL", "the held-out bound", "nats per token", 4),
    "real_word_rate": Headline("Real words", "the share of real words", "points", 1, scale=100.0),
    "entropy": Headline("Entropy", "the entropy of a sample", "nats"),
    "distinct_samples": Headline("Distinct", "the share of distinct samples"),
    "nearest": Headline("Nearest", "the distance to the nearest training row", "edits", 1),
    "mauve": Headline("MAUVE", "MAUVE"),
    "generative_perplexity": Headline("Gen PPL", "generative perplexity", digits=1),
}


def headline(score: str, digits: int) -> Headline:
    """Return how a score is written where space is short. Perplexity has one decimal less than in the tables."""
    found = HEADLINES[score]
    return replace(found, digits=digits - 1) if score == "generative_perplexity" else found


_ARROWS = {"lower": " \u2193", "higher": " \u2191", None: ""}


@dataclass(frozen=True)
class Quantity:
    """One column: a score, and the settings that its values share. `note` is shown below the label."""

    score: str
    depends: tuple[tuple[str, Any], ...]
    note: str
    digits: int

    @property
    def kind(self) -> Kind:
        """How the score is shown."""
        return _kind(self.score)

    @property
    def heading(self) -> str:
        """The label, with an arrow if one direction is better."""
        return self.kind.label + _ARROWS[self.kind.better]

    @property
    def label(self) -> str:
        """The label, with the evaluator's name for generative perplexity."""
        return f"{self.kind.label} ({self.note})" if self.score == "generative_perplexity" else self.kind.label

    @property
    def slug(self) -> str:
        """A name for files."""
        name = slug(self.score)
        return f"{name}-{slug(self.note)}" if self.score == "generative_perplexity" else name


def _kind(score: str) -> Kind:
    name = score.replace("_", " ")
    return KINDS.get(score) or Kind(name, name)


def quantities(experiment: Experiment, names: Iterable[str] | None = None) -> list[Quantity]:
    """List the experiment's quantities in the order of KINDS, all or those with the given score names."""
    known = list(KINDS)
    every = [_quantity(name, score) for scores in experiment.scores.values() for name, score in scores.items()]
    chosen = [q for q in dict.fromkeys(every) if names is None or q.score in names]
    distinct = [_distinguish(q, [o for o in chosen if (o.score, o.note) == (q.score, q.note)]) for q in chosen]
    distinct = [replace(q, digits=_digits(experiment, q)) for q in distinct]
    return sorted(distinct, key=lambda q: (known.index(q.score) if q.score in known else len(known), q.note))


def _quantity(name: str, score: Score) -> Quantity:
    kind = _kind(name)
    depends = tuple((key, score.details.get(key)) for key in kind.depends)
    return Quantity(name, depends, str(depends[0][1] or "") if depends else "", kind.digits)


def _digits(experiment: Experiment, quantity: Quantity) -> int:
    """Return the decimals of a quantity: more for the paper's MAUVE, near 0.01, and for perplexities below 10."""
    if quantity.score in ("mauve", FURTHER) and experiment.is_paper:
        return 5
    if quantity.score == "generative_perplexity":
        found = (scores.get(quantity.score) for scores in experiment.scores.values())
        same = [one.value for one in found if one and _quantity(quantity.score, one).depends == quantity.depends]
        return 4 if max(same) < 10 else quantity.digits
    return quantity.digits


def _distinguish(quantity: Quantity, same_name: list[Quantity]) -> Quantity:
    """Add to the note by what quantities of one name differ: the evaluator's hash, or its settings."""
    others = [dict(other.depends) for other in same_name]
    differing = [(key, value) for key, value in quantity.depends if any(other[key] != value for other in others)]
    parts = [str(value)[:8] if key.endswith("sha256") else f"{key} {value}" for key, value in differing]
    return replace(quantity, note=", ".join([quantity.note, *parts]))


def values(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> dict[int, Score]:
    """Return an arm's scores at a budget by seed, without seeds that have no score of this quantity."""
    by_seed = {}
    for seed in experiment.seeds:
        score = experiment.scores.get((arm, seed, budget), {}).get(quantity.score)
        if score is not None and _quantity(quantity.score, score).depends == quantity.depends:
            by_seed[seed] = score
    return by_seed


def bounds(experiment: Experiment, arm: str, way: str, key: str = "nats") -> dict[int, float]:
    """Return the held-out bound by seed, in nats per token or another unit. Arms without feedback are used plain."""
    by_seed = {}
    for seed in experiment.seeds:
        entry = experiment.likelihoods.get((arm, seed), {})
        bound = entry.get(way) or (entry.get("plain") if way == "two_pass" else None)
        if bound and bound.get(key) is not None:
            by_seed[seed] = float(bound[key])
    return by_seed


@dataclass(frozen=True)
class Point:
    """A mean over seeds, and an interval over seeds (Student's t) or, with one seed, over its samples (bootstrap)."""

    summary: Summary
    interval: tuple[float, float] | None
    over: Literal["seeds", "samples"] | None
    seeds: list[int]

    @property
    def data(self) -> dict[str, Any]:
        """The numbers for a JSON table."""
        return asdict(self.summary) | {"interval": self.interval, "interval_over": self.over, "seeds": self.seeds}


def mean_point(by_seed: Mapping[int, float], bootstrap: tuple[float, float] | None = None) -> Point | None:
    """Summarize values by seed; `bootstrap` is the interval to use if there is one seed. None without values."""
    if not by_seed:
        return None
    summary = summarize(list(by_seed.values()))
    if summary.half_width is None:
        return Point(summary, bootstrap, None if bootstrap is None else "samples", list(by_seed))
    interval = (summary.mean - summary.half_width, summary.mean + summary.half_width)
    return Point(summary, interval, "seeds", list(by_seed))


def point(experiment: Experiment, quantity: Quantity, arm: str, budget: int) -> Point | None:
    """Return an arm's mean of a quantity at a budget, or None if no seed has it."""
    scores = values(experiment, quantity, arm, budget)
    bootstrap = next((score.interval for score in scores.values()), None)
    return mean_point({seed: score.value for seed, score in scores.items()}, bootstrap)
