"""Count the work of training, sampling and scoring from the layout of a model.

`products` are multiplications and additions in matrix products, as torch's `FlopCounterMode` counts them. `numbers` are
results of elementwise kernels, such as norms, activations, softmax and draws; their number was counted once and is
kept here as multiples of the width and of the vocabulary.
"""

from dataclasses import dataclass
from itertools import pairwise

from arcmask.estimates.sizes import Layout

# Results of elementwise kernels: of a block per position and unit of width, and of a row of logits per id.
_BLOCK = 18
_CANDIDATES, _LOSS, _DRAW = 3, 4, 7
_NUCLEUS = 40  # more of a draw with top_p: 8 in a peaked row; 80 in a flat one, which is sorted as a whole
_BACKWARD = 2.5  # of elementwise kernels, relative to the forward pass


@dataclass(frozen=True)
class Work:
    """Operations in matrix products, and results of elementwise kernels."""

    products: float = 0.0
    numbers: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.products + other.products, self.numbers + other.numbers)

    def __mul__(self, factor: float) -> "Work":
        return Work(self.products * factor, self.numbers * factor)


def passing(layout: Layout, length: int) -> Work:
    """Return the work of a pass at one of `length` positions, up to the output layer."""
    return Work(layout.forward(length), _BLOCK * layout.blocks * layout.width)


def _rows(layout: Layout, sweeps: float, products: float = 1.0) -> Work:
    """Return the work on one row of logits."""
    return Work(products * layout.head, sweeps * layout.vocabulary)


def training(layout: Layout, length: int, *, masked: float, feedback: float, recompute: bool = False) -> Work:
    """Return the work of a training step at one position, without the optimiser.

    `masked` is the share of masked positions, `feedback` the share of steps that have a draft pass.
    """
    forward = passing(layout, length)
    work = forward + Work(2 * forward.products + layout.attention(length) / 2, _BACKWARD * forward.numbers)
    work += _rows(layout, _LOSS, products=3) * masked  # the loss has its own gradient in the forward pass
    if recompute:
        work += forward
    return work + bounding(layout, length, masked=masked, sweeps=_CANDIDATES) * feedback


def bounding(layout: Layout, length: int, *, masked: float, sweeps: float = _LOSS) -> Work:
    """Return the work of a pass without gradient at one position, with logits where it is masked."""
    return passing(layout, length) + _rows(layout, sweeps) * masked


def optimising(layout: Layout) -> Work:
    """Return the work of one update: norms, moments, weights and averages."""
    return Work(0.0, 12.0 * layout.parameters)


def sampling(
    layout: Layout,
    length: int,
    steps: int,
    *,
    band: tuple[float, float] | None,
    rule: str = "ancestral",
    top_p: float = 1.0,
) -> Work:
    """Return the work of one sample. `band` is the interval of times with feedback; None without."""
    times = [1 - step / steps for step in range(steps + 1)]
    revealing = 1 - (1 - 1 / steps) ** length  # the probability that a step reveals something
    if rule != "ancestral":
        revealing = min(1.0, length / steps)
    passes, kept = 0.0, 0.0
    for before, after in pairwise(times):
        in_band = band is not None and (band[0] <= before <= band[1])
        feeds_next = band is not None and band[0] <= after <= band[1] and after > 0
        passes += 1.0 if in_band or feeds_next else revealing
        kept += length * after if feeds_next else 0.0
    drawn = length * (steps + 1) / 2 if rule == "confidence" else float(length)
    draws = _rows(layout, _DRAW + (_NUCLEUS if top_p < 1 else 0)) * drawn
    return passing(layout, length) * (passes * length) + draws + _rows(layout, _CANDIDATES) * kept


def clustering(samples: int) -> float:
    """Return the seconds of MAUVE with one seed, which were measured on two cores; k-means grows with the square."""
    return 1e-6 * samples**2


def scoring(layout: Layout, length: int, *, with_losses: bool) -> Work:
    """Return the work of an evaluator at one of `length` tokens: its hidden states, and the loss of every token."""
    return passing(layout, length) + (_rows(layout, _LOSS) if with_losses else Work())
