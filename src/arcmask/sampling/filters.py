"""Draw a token from logits and one uniform number per row: temperature, top-k, top-p, inverse transform sampling.

All computations are in float64. Float32 noise truncates the tail of a large vocabulary, which lowers the effective
temperature.

Shapes: M rows, V vocabulary.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from arcmask.blocks import block_rows, send
from arcmask.errors import ArcmaskError
from arcmask.settings.sample import SampleConfig

_FIRST = 2048  # number of largest weights that are sorted first; most nuclei are smaller
BLOCK = {"cpu": 1 << 20, "gpu": 1 << 25}  # number of float64 values in a block of rows, which limits the memory


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The part of a predicted distribution that tokens are drawn from.

    `top_p` keeps the smallest set of most probable tokens whose total probability reaches p. `drop_crossing` leaves out
    the token that crosses p (but never the first), as the code of the paper's precursor does.

    >>> import torch
    >>> from arcmask.sampling import Filter
    >>> logits, uniform = torch.tensor([[0.1, 0.6, 0.3, 9.0]]).log(), torch.tensor([0.99], dtype=torch.float64)
    >>> Filter(top_p=0.5).draw(logits, uniform, rows=torch.tensor([0]), exclude=3)[0]
    tensor([1])
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    drop_crossing: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature < torch.inf:
            raise ArcmaskError(f"the temperature is {self.temperature}, but must be a number above 0")
        if not 0 < self.top_p <= 1:
            raise ArcmaskError(f"top_p is {self.top_p}, but must lie above 0 and be at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise ArcmaskError(f"top_k is {self.top_k}, but must be 1 or more")

    @classmethod
    def from_settings(cls, config: SampleConfig) -> "Filter":
        """Build the filter from the settings of `arcmask sample`."""
        return cls(**{setting.name: getattr(config, setting.name) for setting in fields(cls)})

    def draw(self, logits: Tensor, uniform: Tensor, *, rows: Tensor, exclude: int) -> tuple[Tensor, Tensor]:
        """Draw a token for each of M rows of logits (N, V). Return the tokens (M,) and their probabilities (M,).

        `uniform` (M,) holds numbers in [0, 1). `exclude` is the mask's id, which is never drawn. The probabilities are
        those of the unfiltered distribution at temperature 1.
        """
        height = block_rows(logits.device, logits.shape[1], **BLOCK)
        blocks = zip(rows.split(height), send(uniform, logits.device).split(height), strict=True)
        tokens, probabilities = zip(
            *(self._draw_block(logits[block].double(), numbers, exclude) for block, numbers in blocks), strict=True
        )
        return torch.cat(tokens), torch.cat(probabilities)

    def _draw_block(self, logits: Tensor, uniform: Tensor, exclude: int) -> tuple[Tensor, Tensor]:
        logits[:, exclude] = -torch.inf
        weights = torch.exp((logits - logits.amax(-1, keepdim=True)) / self.temperature)
        if self.top_k is not None or self.top_p < 1:
            tokens = self._draw_from_the_largest(weights, uniform)
        else:
            tokens = _invert(weights, uniform)
        drawn = logits.gather(1, tokens.unsqueeze(1)).squeeze(1)
        return tokens, torch.exp(drawn - logits.logsumexp(-1))

    def _draw_from_the_largest(self, weights: Tensor, uniform: Tensor) -> Tensor:
        vocabulary = weights.shape[1]
        count = min(vocabulary, self.top_k or _FIRST)
        top = weights.topk(count)
        total = top.values.sum(-1) if self.top_k is not None else weights.sum(-1)
        tokens = self._draw_from_nucleus(top.values, top.indices, total, uniform)
        short = top.values.cumsum(-1)[:, -1] < self.top_p * total
        if self.top_k is None and count < vocabulary and bool(short.any()):
            # The nucleus of a flat row is larger than the first part. Sort these rows completely.
            ordered = weights[short].sort(descending=True)
            tokens[short] = self._draw_from_nucleus(ordered.values, ordered.indices, total[short], uniform[short])
        return tokens

    def _draw_from_nucleus(self, values: Tensor, ids: Tensor, total: Tensor, uniform: Tensor) -> Tensor:
        """Draw from the nucleus, a prefix of the sorted weights and their ids."""
        cumulative = values.cumsum(-1)
        limit = self.top_p * total.unsqueeze(-1)
        # A token is kept if the tokens before it do not reach p; with `drop_crossing`, if it does not exceed p itself.
        kept = cumulative <= limit if self.drop_crossing else cumulative - values < limit
        kept[:, 0] = True
        index = _invert(values * kept, uniform)
        return ids.gather(1, index.unsqueeze(1)).squeeze(1)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the first index of each row where the cumulative weight exceeds uniform * total."""
    cumulative = weights.cumsum(-1)
    target = uniform * cumulative[:, -1]
    return torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1).clamp_(max=weights.shape[1] - 1)
