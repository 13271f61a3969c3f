"""The four things a backbone can be given in place of token ids (the paper's "Backbone Embedding Layer Modification").

Each is a type of its own; `embed` turns any of them into embeddings. A bare tensor is taken for what its shape says,
and refused if its shape says two things.

Shapes: B sequences, L positions, V vocabulary, D width, K candidates.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from arcmask.errors import ArcmaskError


@dataclass(frozen=True)
class TokenIds:
    """(B, L) ids: a row of the table each."""

    ids: Tensor


@dataclass(frozen=True)
class Mixture:
    """(B, L, K) ids and weights: a weighted sum of K rows of the table each."""

    ids: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Embedded:
    """(B, L, D) embeddings, passed on unchanged."""

    embeddings: Tensor


@dataclass(frozen=True)
class Distribution:
    """(B, L, V) probabilities: the expected row of the table each."""

    probs: Tensor


ModelInput = TokenIds | Mixture | Embedded | Distribution
"""Any of the four inputs that `embed` takes."""


def embed(given: ModelInput | Tensor, table: Tensor) -> Tensor:
    """Any of the four, and a table (V, D) -> embeddings (B, L, D)."""
    if isinstance(given, Tensor):
        given = _by_shape(given, table)
    if isinstance(given, TokenIds):
        return functional.embedding(_checked("ids", given.ids, 2), table)
    if isinstance(given, Mixture):
        ids, weights = _checked("ids", given.ids, 3), _checked("weights", given.weights, 3)
        if ids.shape != weights.shape:
            raise ArcmaskError(f"a mixture has ids {tuple(ids.shape)} but weights {tuple(weights.shape)}")
        # embedding_bag sums as it gathers, so that (B, L, K, D) never exists.
        flat_ids, flat_weights = ids.flatten(0, 1), weights.flatten(0, 1).to(table.dtype)
        sums = functional.embedding_bag(flat_ids, table, per_sample_weights=flat_weights, mode="sum")
        return sums.unflatten(0, ids.shape[:2])
    if isinstance(given, Embedded):
        return _checked("embeddings", given.embeddings, 3, last=table.shape[1])
    return _checked("probs", given.probs, 3, last=table.shape[0]).to(table.dtype) @ table


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
        wanted = {2: "(B, L)", 3: "(B, L, K)"}[ndim] if last is None else f"(B, L, {last})"
        raise ArcmaskError(f"{name} must have the shape {wanted}, but have {tuple(tensor.shape)}")
    if name == "ids" and (tensor.is_floating_point() or tensor.dtype == torch.bool):
        raise ArcmaskError(f"ids must be integers, but are {str(tensor.dtype).removeprefix('torch.')}")
    return tensor
