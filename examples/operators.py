"""What the operators do, measured: `python -m examples.operators` (and `make demo`).

One mask, three candidates that agree in part, and a walk from weight 0 to
weight 1 under each operator. Everything printed is computed here.
"""

import torch

from arcmask import sphere
from arcmask.feedback import OPERATORS

WIDTH, POSITIONS = 768, 256
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def main() -> None:
    """Print, for each operator, the norm along its path and how evenly it turns."""
    draw = torch.Generator().manual_seed(0)
    mask = torch.randn(WIDTH, generator=draw, dtype=torch.float64)
    shared = torch.randn(POSITIONS, 1, WIDTH, generator=draw, dtype=torch.float64)
    candidates = shared + torch.randn(POSITIONS, 3, WIDTH, generator=draw, dtype=torch.float64)
    candidates = mask.norm() * sphere.unit(candidates + 0.3 * mask)  # all on the mask's shell
    probs = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64).expand(POSITIONS, 3)

    angle = sphere.angle(mask, sphere.frechet_mean(candidates, probs)).rad2deg().mean()
    print(
        f"{POSITIONS} masked positions in {WIDTH} dimensions; mask and predicted mean are {angle:.1f} degrees apart\n"
    )
    heading = "  ".join(f"w = {weight:<4}" for weight in WEIGHTS)
    print(f"{'norm / mask norm':22}{heading}")
    paths = {name: walk(name, mask, candidates, probs) for name in OPERATORS}
    for name, path in paths.items():
        row = "  ".join(f"{ratio:8.4f}" for ratio in (path.norm(dim=-1) / mask.norm()).mean(1))
        print(f"{name:22}{row}")
    print(f"\n{'angle to mask, deg':22}{heading}")
    for name, path in paths.items():
        row = "  ".join(f"{degrees:8.2f}" for degrees in sphere.angle(mask, path).rad2deg().mean(1))
        print(f"{name:22}{row}")
    print("\nlinear falls inside the shell; renormalized is put back on it but turns unevenly; the spherical")
    print("operators stay on it and turn by weight x angle.")


def walk(name: str, mask: torch.Tensor, candidates: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """(len(WEIGHTS), M, D): the operator's output at each weight."""
    steps = [torch.full((POSITIONS,), weight, dtype=torch.float64) for weight in WEIGHTS]
    return torch.stack([OPERATORS[name](mask, candidates, probs, weight) for weight in steps])


if __name__ == "__main__":
    main()
