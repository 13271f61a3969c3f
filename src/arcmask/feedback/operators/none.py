"""No feedback."""

from torch import Tensor

from arcmask.feedback.registry import operator


@operator("none", label="no feedback", colour="#8a9399", keeps_norm=True, uses_steps=False)
def none(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG001
    """Keep the plain mask, as a masked diffusion model without feedback does."""
    return mask.expand(candidates.shape[0], -1)
