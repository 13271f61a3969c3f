"""From logits and one uniform number a row to a token: temperature, top-k, top-p, and an inverted cumulative sum.

In float64 throughout: float32 noise cuts off the tail of a large vocabulary and so lowers the effective temperature.

Shapes: M rows, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError
from arcmask.settings.sample import SampleConfig

# Rows are sorted only as far as the nucleus reaches; this many of the largest are tried first.
_FIRST = 2048
# Float64 numbers in a block of rows, so that many rows need no more memory than a few.
_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which part of a prediction a token is drawn from.

    `top_p` keeps the smallest set of most probable tokens that reaches p, the one that crosses it included;
    `drop_crossing` leaves that one out (but never the first), as the code of the paper's precursor does.
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
        """Build the filter of `arcmask sample`'s settings."""
        return cls(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            drop_crossing=config.drop_crossing,
        )

    def draw(self, logits: Tensor, uniform: Tensor, *, rows: Tensor, exclude: int) -> tuple[Tensor, Tensor]:
        """Logits (N, V), a number in [0, 1) for each of M rows, the mask's id -> tokens (M,) and their shares (M,).

        The share is of the unfiltered distribution at temperature 1: how certain the model was of what was drawn.
        """
        height = max(1, _BLOCK // logits.shape[1])
        parts = zip(rows.split(height), uniform.to(logits.device).split(height), strict=True)
        drawn = [self._draw(logits[some].double(), numbers, exclude) for some, numbers in parts]
        return torch.cat([tokens for tokens, _ in drawn]), torch.cat([shares for _, shares in drawn])

    def _draw(self, wide: Tensor, uniform: Tensor, exclude: int) -> tuple[Tensor, Tensor]:
        wide[:, exclude] = -torch.inf
        largest = wide.amax(-1, keepdim=True)
        weights = torch.exp((wide - largest) / self.temperature)
        if self.top_k is not None or self.top_p < 1:
            tokens = self._draw_from_the_largest(weights, uniform)
        else:
            tokens = _invert(weights, uniform)
        picked = wide.gather(1, tokens.unsqueeze(1)).squeeze(1)
        return tokens, torch.exp(picked - wide.logsumexp(-1))

    def _draw_from_the_largest(self, weights: Tensor, uniform: Tensor) -> Tensor:
        vocabulary = weights.shape[1]
        count = min(vocabulary, self.top_k or _FIRST)
        top = weights.topk(count)
        total = top.values.sum(-1) if self.top_k is not None else weights.sum(-1)
        cumulative = top.values.cumsum(-1)
        short = cumulative[:, -1] < self.top_p * total
        if self.top_k is None and count < vocabulary and bool(short.any()):
            # Flat rows reach further than the first so many; they are sorted whole.
            tokens = torch.empty(len(weights), dtype=torch.long, device=weights.device)
            tokens[short] = self._from_nucleus(*weights[short].sort(descending=True), total[short], uniform[short])
            tokens[~short] = self._from_nucleus(top.values[~short], top.indices[~short], total[~short], uniform[~short])
            return tokens
        return self._from_nucleus(top.values, top.indices, total, uniform)

    def _from_nucleus(self, values: Tensor, ids: Tensor, total: Tensor, uniform: Tensor) -> Tensor:
        """Sorted weights and their ids, of which the nucleus is a prefix."""
        cumulative = values.cumsum(-1)
        limit = self.top_p * total.unsqueeze(-1)
        # A token is kept while those before it have not reached p; or, the other way, while it does not exceed p.
        kept = cumulative <= limit if self.drop_crossing else cumulative - values < limit
        kept[:, 0] = True
        place = _invert(values * kept, uniform)
        return ids.gather(1, place.unsqueeze(1)).squeeze(1)


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """The place in each row where the cumulative weight first exceeds uniform x total."""
    cumulative = weights.cumsum(-1)
    target = uniform * cumulative[:, -1]
    return torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1).clamp_(max=weights.shape[1] - 1)
