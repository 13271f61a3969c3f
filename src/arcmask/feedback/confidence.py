"""The feedback weight as a function of entropy. It sets how far a masked position moves towards its prediction.

The weight (the paper's lambda) is scale * sigmoid(steepness * (-entropy - centre)) (Eq. 1) with three learned scalars,
or one fixed number.
"""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from arcmask.errors import ArcmaskError


class Confidence(nn.Module):
    """Map entropy (M,) in nats to the feedback weight (M,).

    The three scalars are learned in a form that cannot leave its range: scale in (0, 1) through a logit, steepness
    above 0 and centre below 0 through softplus. With `fixed` the weight is that constant, and nothing is learned.

    >>> import torch
    >>> from arcmask.feedback import Confidence
    >>> Confidence(scale=0.5, centre=-4.0)(torch.tensor([4.0, 0.0]))
    tensor([0.2500, 0.5000], grad_fn=<MulBackward0>)
    >>> Confidence(fixed=0.3)(torch.tensor([4.0, 0.0]))
    tensor([0.3000, 0.3000])
    """

    def __init__(
        self,
        scale: float = 0.5,
        centre: float = -4.0,
        steepness: float = 10 / 1.5,
        fixed: float | None = None,
    ) -> None:
        super().__init__()
        self.fixed = fixed
        if fixed is not None:
            if not 0 <= fixed <= 1:
                raise ArcmaskError(f"the fixed weight is {fixed}, but must lie between 0 and 1")
            return
        if not 0 < scale < 1:
            raise ArcmaskError(f"the confidence scale is {scale}, but must lie strictly between 0 and 1")
        if not -torch.inf < centre < 0:
            raise ArcmaskError(f"the confidence centre is {centre}, but must be a number below 0")
        if not 0 < steepness < torch.inf:
            raise ArcmaskError(f"the confidence steepness is {steepness}, but must be a number above 0")
        self.raw_scale = nn.Parameter(torch.logit(torch.tensor(float(scale), dtype=torch.float64)).float())
        self.raw_centre = nn.Parameter(_inverse_softplus(-centre))
        self.raw_steepness = nn.Parameter(_inverse_softplus(steepness))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Restore a confidence from {"fixed": weight}, or from the three raw scalars by name."""
        if set(settings) == {"fixed"}:
            return cls(fixed=settings["fixed"])
        confidence = cls()
        names = [name for name, _ in confidence.named_parameters()]
        if set(settings) != set(names):
            raise ArcmaskError(f"confidence settings are {sorted(settings)}, but must be ['fixed'] or {sorted(names)}")
        confidence.load_state_dict({name: torch.as_tensor(settings[name], dtype=torch.float32) for name in names})
        return confidence

    @property
    def scale(self) -> Tensor:
        """The upper limit of the weight, in (0, 1)."""
        return torch.sigmoid(self.raw_scale)

    @property
    def centre(self) -> Tensor:
        """Minus the entropy at which the weight is half its scale; below 0."""
        return -softplus(self.raw_centre)

    @property
    def steepness(self) -> Tensor:
        """The slope of the sigmoid, above 0."""
        return softplus(self.raw_steepness)

    def forward(self, entropy: Tensor) -> Tensor:
        if self.fixed is not None:
            return torch.full_like(entropy, self.fixed)
        return self.scale * torch.sigmoid(self.steepness * (-entropy - self.centre))

    def extra_repr(self) -> str:
        if self.fixed is not None:
            return f"fixed={self.fixed}"
        return f"scale={self.scale.item():.4g}, centre={self.centre.item():.4g}, steepness={self.steepness.item():.4g}"


def _inverse_softplus(value: float) -> Tensor:
    # log(exp(v) - 1) = v + log(1 - exp(-v)), which does not overflow.
    wide = torch.tensor(float(value), dtype=torch.float64)
    return (wide + torch.log(-torch.expm1(-wide))).float()
