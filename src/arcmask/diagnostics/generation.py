"""Measure what feedback gains in generation without training: the quality of samples against their entropy.

A lower temperature raises the quality of samples too, and lowers their entropy. Feedback is therefore compared with
plain sampling at equal entropy. All cells share the random numbers of sample i, so differences are paired.

Shapes: N samples, C cells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from arcmask.diagnostics.gain import feedback_operators
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import Evaluator
from arcmask.evaluation.scores import inner_words, text_losses, token_entropy
from arcmask.evaluation.statistics import CONFIDENCE
from arcmask.evaluation.texts import ReferenceWords
from arcmask.feedback import Confidence, Operator, SoftMask, find_operator
from arcmask.feedback.registry import Function
from arcmask.model import Denoiser
from arcmask.sampling import sample
from arcmask.settings.evaluate import PerplexitySettings

WEIGHTS, TEMPERATURES = (0.15, 0.3, 0.45), (1.0, 0.85, 0.7)
_REPEATS = 2000  # of the bootstrap
Counts = NDArray[np.float64]  # (N, 3): numerator and denominator of the quality, and the entropy of each sample


@dataclass(frozen=True)
class Quality:
    """A score of samples: the sum of their numerators over the sum of their denominators.

    `measure` returns a numerator and a denominator for each text. `scale` is for people: 100 for per cent.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    measure: Callable[[list[str]], list[tuple[float, float]]]
    scale: float = 1.0

    @property
    def sign(self) -> int:
        """1 if higher is better, or -1."""
        return 1 if self.better == "higher" else -1


def real_words(reference: ReferenceWords) -> Quality:
    """Return the share of generated words that occur in a reference; raise if its texts have no words."""
    if reference.longest < 3:
        raise ArcmaskError(
            f"real words cannot be counted: no text of {reference.source} has a word between its first and its last; "
            "measure samples by an evaluator (--evaluator NAME, or quality= in Python)"
        )

    def measure(texts: list[str]) -> list[tuple[float, float]]:
        words = [inner_words(text) for text in texts]
        return [(sum(word in reference.words for word in one), len(one)) for one in words]

    return Quality("real words (%)", "points", "higher", measure, scale=100.0)


def evaluator_loss(evaluator: Evaluator, cache: Path | None = None) -> Quality:
    """Return the loss of samples under an evaluator, in nats per token: the logarithm of generative perplexity."""

    def measure(texts: list[str]) -> list[tuple[float, float]]:
        losses = text_losses(evaluator, texts, PerplexitySettings(), cache=cache)
        return [(loss.nats, loss.tokens) for loss in losses or ()]

    return Quality(f"loss under {evaluator.name}", "nats per token", "lower", measure)


@dataclass(frozen=True)
class Point:
    """The quality and the entropy of one cell, and its differences from plain sampling at temperature 1.

    Half widths are those of 95 % confidence intervals (bootstrap over samples, paired).
    """

    setting: float  # the weight of feedback, or the temperature of plain sampling
    quality: float
    quality_half_width: float
    entropy: float
    difference: float
    half_width: float
    gain: float | None  # difference from plain sampling at the same entropy; None for plain sampling itself
    gain_half_width: float | None


@dataclass(frozen=True)
class GenerationCurve:
    """Quality against entropy: for each operator over weights, and for plain sampling over temperatures.

    The quality of plain sampling at any entropy is read off a straight line through its temperatures (least squares).
    """

    quality: str
    unit: str
    better: str
    samples: int
    length: int
    steps: int
    operators: dict[str, list[Point]]
    plain: list[Point]

    @property
    def best(self) -> tuple[str, Point]:
        """The operator and the point with the largest gain at equal entropy."""
        sign = 1 if self.better == "higher" else -1
        points = [(name, point) for name, column in self.operators.items() for point in column]
        return max(points, key=lambda pair: sign * (pair[1].gain or 0.0))

    @property
    def reading(self) -> str:
        name, point = self.best
        plain, gain = self.plain[0], abs(point.gain or 0.0)
        is_better = ((point.gain or 0.0) > 0) == (self.better == "higher")
        if not is_better or gain <= (point.gain_half_width or 0.0):
            return (
                f"No operator improves the {self.quality} of {self.samples} samples beyond the confidence interval, "
                f"compared with plain sampling at the same entropy."
            )
        return (
            f"Feedback improves samples without any training. {find_operator(name).label} with the weight "
            f"{point.setting:g} changes the {self.quality} from {plain.quality:.4g} to {point.quality:.4g} and the "
            f"entropy from {plain.entropy:.3f} to {point.entropy:.3f} nats. Plain sampling reaches that entropy at a "
            f"lower temperature; compared with it, feedback gains {gain:.2g} ± {point.gain_half_width:.2g} {self.unit} "
            f"({self.samples} samples, T = {self.steps})."
        )


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Draw the samples of cells, and measure them."""

    denoiser: Denoiser
    quality: Quality
    samples: int
    length: int | None = None
    steps: int = 64
    seed: int = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        if getattr(self.denoiser, "tokenizer", None) is None:
            raise ArcmaskError("the model has no tokenizer, so the quality of its texts cannot be measured")
        if self.samples < 2:
            raise ArcmaskError(f"samples is {self.samples}, but an interval needs 2 or more")

    def counts(self, feedback: SoftMask | None, temperature: float = 1.0) -> Counts:
        """Draw the samples of one cell and return its counts (N, 3)."""
        drawn = sample(
            self.denoiser,
            self.samples,
            self.length,
            self.steps,
            feedback=feedback,
            temperature=temperature,
            seed=self.seed,
            batch_size=self.batch_size,
        )
        assert drawn.texts is not None
        entropies = [token_entropy(tokens) for tokens in drawn.tokens.tolist()]
        pairs = self.quality.measure(drawn.texts)
        return np.array([(*pair, entropy) for pair, entropy in zip(pairs, entropies, strict=True)])


def generation_curve(
    generator: Generator,
    operators: Sequence[str | Function | Operator] | None = None,
    weights: Sequence[float] = WEIGHTS,
    temperatures: Sequence[float] = TEMPERATURES,
    *,
    top_k: int = 3,
    karcher_steps: int = 3,
    advance: Callable[[int], object] = lambda _: None,
) -> GenerationCurve:
    """Sample with each operator (by default all) and fixed weight, and plainly at each temperature; the first is 1.

    `advance` is called with 1 after each cell.
    """
    names = feedback_operators(operators)

    def cell(feedback: SoftMask | None, temperature: float = 1.0) -> Counts:
        counts = generator.counts(feedback, temperature)
        advance(1)
        return counts

    plain = [cell(None, temperature) for temperature in temperatures]
    columns = {
        name: [cell(SoftMask(name, top_k, karcher_steps, Confidence(fixed=weight))) for weight in weights]
        for name in names
    }
    quality = generator.quality
    return GenerationCurve(
        quality=quality.name,
        unit=quality.unit,
        better=quality.better,
        samples=generator.samples,
        length=int(generator.length or generator.denoiser.max_length or 0),
        steps=generator.steps,
        operators={
            name: [compare(cell, plain, weight, quality.scale) for cell, weight in zip(column, weights, strict=True)]
            for name, column in columns.items()
        },
        plain=[
            compare(cell, plain, temperature, quality.scale, is_plain=True)
            for cell, temperature in zip(plain, temperatures, strict=True)
        ],
    )


def compare(
    cell: Counts, plain: Sequence[Counts], setting: float, scale: float = 1.0, *, is_plain: bool = False
) -> Point:
    """Compare a cell (N, 3) with plain sampling at several temperatures, the first of which is 1."""
    cells = np.stack([cell, *plain])  # (C, N, 3)
    drawn = np.random.default_rng(0).integers(cells.shape[1], size=(_REPEATS, cells.shape[1]))
    every = np.concatenate([np.arange(cells.shape[1])[None], drawn])  # the samples as they are come first
    sums = cells[:, every].sum(2)  # (C, 1 + repeats, 3)
    qualities = scale * sums[..., 0] / np.maximum(sums[..., 1], 1e-300)
    entropies = sums[..., 2] / cells.shape[1]
    line = _line_through(entropies[1:], qualities[1:])
    columns = {
        "quality": qualities[0],
        "difference": qualities[0] - qualities[1],
        "gain": qualities[0] - line(entropies[0]),
    }
    half = {name: _half_width(values[1:]) for name, values in columns.items()}
    return Point(
        setting=setting,
        quality=float(qualities[0, 0]),
        quality_half_width=half["quality"],
        entropy=float(entropies[0, 0]),
        difference=float(columns["difference"][0]),
        half_width=half["difference"],
        gain=None if is_plain or len(plain) < 2 else float(columns["gain"][0]),
        gain_half_width=None if is_plain or len(plain) < 2 else half["gain"],
    )


def _line_through(entropies: Counts, qualities: Counts) -> Callable[[Counts], Counts]:
    """Return the least-squares line through points (C, R), for each of R resamples."""
    x, y = entropies.mean(0), qualities.mean(0)
    spread = ((entropies - x) ** 2).sum(0)
    slope = ((entropies - x) * (qualities - y)).sum(0) / np.maximum(spread, 1e-300)
    return lambda at: y + slope * (at - x)


def _half_width(values: Counts) -> float:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(high - low) / 2
