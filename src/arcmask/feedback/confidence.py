"""The feedback weight as a function of entropy. It sets how far a masked position moves towards its prediction.

The weight (the paper's lambda) is scale * sigmoid(steepness * (-entropy - centre)) (Eq. 1) with three learned scalars,
or one fixed number. The scalars belong to a model: `Confidence.calibrated` fits them to the entropies of its
predictions.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from arcmask.errors import ArcmaskError

MEAN_WEIGHT = 0.135  # the paper's at the start of training
_STEEPNESS = (1.0, 20.0)  # the range of a calibrated steepness
_LARGEST_CENTRE = -1e-3  # of a calibration; a centre lies below 0
_NEAR = 0.02  # of the scale: how near 0 or the scale most weights are for `describe_extreme`
_ADVICE = (
    "fit the confidence to the model with `arcmask tune`, `train --centre auto --steepness auto` or in Python "
    "`SoftMask.calibrated`"
)
_MOST = 0.95  # of the weights


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
    def calibrated(
        cls,
        entropy: Tensor,
        scale: float = 0.5,
        mean_weight: float = MEAN_WEIGHT,
        *,
        centre: float | None = None,
        steepness: float | None = None,
    ) -> Self:
        """Fit centre and steepness to entropies (M,) of a model's predictions; a value that is given is kept.

        The steepness is 4 / (interquartile range of the entropies), clipped to [1, 20]. The centre is such that the
        mean weight is `mean_weight`; a model that is nearly certain everywhere gets the largest centre there is, with a
        warning.

        >>> import torch
        >>> from arcmask.feedback import Confidence
        >>> entropy = torch.linspace(2.0, 8.0, 100)
        >>> confidence = Confidence.calibrated(entropy)
        >>> confidence
        Confidence(scale=0.5, centre=-3.518, steepness=1.333)
        >>> round(confidence(entropy).mean().item(), 4)
        0.135
        """
        entropy = entropy.detach().double().flatten()
        if not len(entropy) or not bool(torch.isfinite(entropy).all()):
            raise ArcmaskError("a confidence is calibrated on one entropy or more, all of them finite numbers")
        check_calibration(scale, mean_weight)
        if steepness is None:
            low, high = torch.quantile(entropy, entropy.new_tensor([0.25, 0.75])).tolist()
            steepness = round(min(max(4 / max(high - low, 1e-9), _STEEPNESS[0]), _STEEPNESS[1]), 6)
        if centre is None:
            centre = round(_solve_centre(entropy, scale, steepness, mean_weight), 6)
        return cls(scale=scale, centre=centre, steepness=steepness)

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

    def describe_extreme(self, weight: Tensor, advice: str = _ADVICE) -> str | None:
        """Say in a sentence that the weights (M,) are all near 0 or all near the scale; None if they are not.

        "All" is 95 % of them, and "near" is within 2 % of the scale. A fixed weight is never extreme. `advice` ends the
        sentence.

        >>> import torch
        >>> from arcmask.feedback import Confidence
        >>> confidence = Confidence(centre=-4.0)
        >>> confidence.describe_extreme(confidence(torch.tensor([3.0, 4.0, 5.0])))
        >>> confidence.describe_extreme(confidence(torch.tensor([6.0, 6.5])))[:35]
        'the feedback weights are all near 0'
        """
        if self.fixed is not None or not len(weight):
            return None
        weight, scale = weight.detach().double(), self.scale.item()
        median = weight.median().item()
        if (weight < _NEAR * scale).double().mean().item() >= _MOST:
            return f"the feedback weights are all near 0 (median {median:.2g}), so feedback does nothing; {advice}"
        if (weight > (1 - _NEAR) * scale).double().mean().item() >= _MOST:
            return (
                f"the feedback weights are all near their top (median {median:.2g}, scale {scale:.2g}), so they do not "
                f"depend on the entropy; {advice}"
            )
        return None

    def extra_repr(self) -> str:
        if self.fixed is not None:
            return f"fixed={self.fixed}"
        return f"scale={self.scale.item():.4g}, centre={self.centre.item():.4g}, steepness={self.steepness.item():.4g}"


def _inverse_softplus(value: float) -> Tensor:
    # log(exp(v) - 1) = v + log(1 - exp(-v)), which does not overflow.
    wide = torch.tensor(float(value), dtype=torch.float64)
    return (wide + torch.log(-torch.expm1(-wide))).float()


def check_calibration(scale: float, mean_weight: float = MEAN_WEIGHT) -> None:
    """Raise unless weights below `scale` can have the mean `mean_weight`."""
    if not 0 < mean_weight < scale:
        raise ArcmaskError(
            f"weights with the scale {scale:g} cannot have the mean {mean_weight:g} to which the centre is calibrated; "
            "give a larger scale, or numbers for centre and steepness"
        )


def _solve_centre(entropy: Tensor, scale: float, steepness: float, mean_weight: float) -> float:
    """Return the centre at which entropies (M,) have the mean weight, by bisection: the mean falls with the centre."""

    def mean(centre: float) -> float:
        return scale * torch.sigmoid(steepness * (-entropy - centre)).mean().item()

    low, high = -entropy.max().item() - 40 / steepness, _LARGEST_CENTRE  # at `low` every weight is the scale
    if mean(high) > mean_weight:
        warnings.warn(
            f"the model is so certain (median entropy {entropy.median().item():.2g} nats) that no centre below 0 gives "
            f"the mean weight {mean_weight:g}; the centre is {high:g} and the mean weight {mean(high):.2g}",
            stacklevel=3,
        )
        return high
    while high - low > 1e-9 * max(1.0, -low):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) > mean_weight else (low, middle)
    return high
