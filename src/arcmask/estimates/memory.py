"""Count the memory that training, sampling and scoring take on one device, in bytes."""

from dataclasses import dataclass
from typing import Literal

from arcmask.estimates.sizes import Layout
from arcmask.objective import CHUNK, LINEAR_CHUNKS
from arcmask.sampling import filters, sampler

Device = Literal["cpu", "gpu"]
# What a block keeps for the backward pass, in bytes per position and unit of width: without and with dropout.
_KEPT = {"float32": (56, 64), "bfloat16": (34, 38)}
_INPUT = 4  # what it keeps if it is run again in the backward pass: its input
_ENDS = 12  # what the embeddings and the last norm keep
_STATE = 5 * 4  # bytes per parameter: weights, gradients, averages and two moments in float32
_BUCKETS = 4  # bytes per parameter: gradients that ranks exchange
_STEP = 8  # bytes per parameter while the optimiser updates, and while a checkpoint is copied
_PASSING = 60  # bytes per position and unit of width that exist at a time in a pass without gradient
_DRAWING, _SORTING = 5 * 8, 6 * 8  # bytes per number of a block of draws, which are in float64; more with top_p


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one process by what they are for."""

    state: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """The sum."""
        return self.state + self.activations + self.logits


def _casts(layout: Layout, precision: str) -> float:
    """Return the bytes of the weights that autocast keeps in bfloat16."""
    return 2.0 * (layout.matrices + layout.vocabulary * layout.width) if precision == "bfloat16" else 0.0


def training(
    layout: Layout,
    *,
    rows: int,
    length: int,
    precision: str,
    dropout: float,
    recompute: bool,
    world: int,
    device: Device,
) -> Memory:
    """Return the memory of a training step with micro-batches of `rows` sequences."""
    kept = _KEPT.get(precision, _KEPT["float32"])[dropout > 0]
    table = 4.0 * layout.vocabulary * layout.width
    blocks = layout.blocks * _INPUT + kept if recompute else layout.blocks * kept
    masked = rows * length / 2
    logits = min(LINEAR_CHUNKS * CHUNK[device], masked * layout.vocabulary) * (6 if precision == "bfloat16" else 4)
    buckets = _BUCKETS if world > 1 else 0
    activations = rows * length * layout.width * (blocks + _ENDS)
    # Gradients of the output layer, of the embeddings, and of the candidates' embeddings exist beside the sums.
    backward = activations + logits + 3 * table
    wide = 2 if precision == "float64" else 1
    return Memory(
        state=wide * (_STATE + buckets) * layout.parameters + _casts(layout, precision),
        activations=wide * activations,
        logits=wide * (max(backward, _STEP * layout.parameters) - activations),
    )


def sampling(layout: Layout, *, rows: int, length: int, precision: str, device: Device, top_p: float = 1.0) -> Memory:
    """Return the memory of a sampling step with batches of `rows` samples."""
    vocabulary, positions = layout.vocabulary, rows * length
    logits = min(2 * sampler.CHUNK[device], positions * vocabulary) * 4.0  # a chunk, and the one before it
    drawing = _DRAWING + (_SORTING if top_p < 1 else 0)
    draws = min(filters.BLOCK[device], positions * vocabulary) * float(drawing)
    return Memory(
        state=4.0 * layout.parameters + _casts(layout, precision),
        activations=float(positions * layout.width * _PASSING),
        logits=logits + draws,
    )


def scoring(layout: Layout, *, tokens: int, precision: str, chunk: int) -> Memory:
    """Return the memory of an evaluator with batches of so many tokens, and `chunk` logits at a time."""
    return Memory(
        state=4.0 * layout.parameters + _casts(layout, precision),
        activations=float(tokens * layout.width * 2 * _PASSING),  # transformers' layers keep more
        logits=min(chunk, tokens * layout.vocabulary) * 12.0,  # with their softmax, and the chunk before
    )
