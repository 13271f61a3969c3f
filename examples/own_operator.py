"""Operators of your own: a function, with or without a record of what it does.

    python examples/own_operator.py
    arcmask sample sotu-tiny --feedback examples/own_operator.py:nearest
    arcmask reproduce quickstart --operators examples/own_operator.py:halfway

An operator maps the mask's embedding (D,), the candidates' embeddings (M, K, D), their probabilities (M, K) and a
weight (M,) to the embeddings (M, D) of the masked positions.
"""

from torch import Tensor

import arcmask
from arcmask.feedback import Confidence, SoftMask, operator


def nearest(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG001
    """Move straight towards the most probable candidate.

    A plain function is enough. Reports and figures call it by its name.
    """
    return mask + weight.unsqueeze(1) * (candidates[:, 0] - mask)


@operator("halfway", label="half-way (LERP)", colour="#884400", keeps_norm=False)
def halfway(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor) -> Tensor:
    """Move straight towards the mean of the candidates, half as far as `linear` does.

    The decorator sets the name, and what reports, figures and the explorer show.
    """
    mean = (probs.unsqueeze(2) * candidates).sum(dim=1)
    return mask + 0.5 * weight.unsqueeze(1) * (mean - mask)


if __name__ == "__main__":
    denoiser = arcmask.load("sotu-tiny")
    for function in (nearest, halfway):
        feedback = SoftMask(function, confidence=Confidence(fixed=0.3))
        samples = arcmask.sample(denoiser, length=80, steps=32, feedback=feedback, prompt="we the people ")
        print(f"{feedback.record.label}: {(samples.texts or [''])[0]}")
