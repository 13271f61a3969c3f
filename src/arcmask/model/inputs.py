"""The four kinds of input of a backbone (the paper's "Backbone Embedding Layer Modification").

Each kind is a type, and `embed` turns any of them into embeddings. The kind of a bare tensor follows from its shape; an
ambiguous shape is an error.

Shapes: B sequences, L positions, V vocabulary, D width, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from arcmask.errors import ArcmaskError


@dataclass(frozen=True)
class TokenIds:
    """Token ids (B, L): a row of the table for each position."""

    ids: Tensor


@dataclass(frozen=True)
class Mixture:
    """Ids and weights (B, L, K): a weighted sum of K rows of the table for each position."""

    ids: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Embedded:
    """Embeddings (B, L, D), which are used unchanged."""

    embeddings: Tensor


@dataclass(frozen=True)
class Distribution:
    """Probabilities (B, L, V): the expected row of the table for each position."""

    probs: Tensor


ModelInput = TokenIds | Mixture | Embedded | Distribution
"""Any of the four inputs that `embed` takes."""


def embed(source: ModelInput | Tensor, table: Tensor) -> Tensor:
    """Return the embeddings (B, L, D) of an input of any kind under a table (V, D).

    >>> import torch
    >>> from arcmask.model import Distribution, TokenIds, embed
    >>> table = torch.randn(5, 3)
    >>> torch.equal(embed(TokenIds(torch.tensor([[2]])), table), table[2].reshape(1, 1, 3))
    True
    >>> embed(Distribution(torch.full((1, 4, 5), 0.2)), table).shape
    torch.Size([1, 4, 3])
    """
    if isinstance(source, Tensor):
        source = _by_shape(source, table)
    if isinstance(source, TokenIds):
        return functional.embedding(_checked("ids", source.ids, 2), table)
    if isinstance(source, Mixture):
        ids, weights = _checked("ids", source.ids, 3), _checked("weights", source.weights, 3)
        if ids.shape != weights.shape:
            raise ArcmaskError(f"a mixture has ids {tuple(ids.shape)} but weights {tuple(weights.shape)}")
        # embedding_bag sums while it gathers, so no (B, L, K, D) tensor is built.
        flat_ids, flat_weights = ids.flatten(0, 1), weights.flatten(0, 1).to(table.dtype)
        sums = functional.embedding_bag(flat_ids, table, per_sample_weights=flat_weights, mode="sum")
        return sums.unflatten(0, ids.shape[:2])
    if isinstance(source, Embedded):
        return _checked("embeddings", source.embeddings, 3, last=table.shape[1])
    return _checked("probs", source.probs, 3, last=table.shape[0]).to(table.dtype) @ table


def _by_shape(tensor: Tensor, table: Tensor) -> ModelInput:
    vocabulary, width = table.shape
    if not tensor.is_floating_point() and tensor.ndim == 2:
        return TokenIds(tensor)
    if tensor.is_floating_point() and tensor.ndim == 3:
        if vocabulary == width == tensor.shape[2]:
            raise ArcmaskError(
                f"a tensor of shape {tuple(tensor.shape)} may be embeddings or a distribution, since the table is "
                f"{vocabulary} x {width}; say which with Embedded(tensor) or Distribution(tensor)"
            )
        if tensor.shape[2] == width:
            return Embedded(tensor)
        if tensor.shape[2] == vocabulary:
            return Distribution(tensor)
    raise ArcmaskError(
        f"a {str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)} is none of: integer ids "
        f"(B, L), embeddings (B, L, {width}), a distribution (B, L, {vocabulary}); a sparse one is a Mixture"
    )


def _checked(name: str, tensor: Tensor, ndim: int, last: int | None = None) -> Tensor:
    if tensor.ndim != ndim or (last is not None and tensor.shape[-1] != last):
        shape = {2: "(B, L)", 3: "(B, L, K)"}[ndim] if last is None else f"(B, L, {last})"
        raise ArcmaskError(f"{name} must have the shape {shape}, but have {tuple(tensor.shape)}")
    if name == "ids" and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise ArcmaskError(f"ids must be integers, but are {str(tensor.dtype).removeprefix('torch.')}")
    return tensor
