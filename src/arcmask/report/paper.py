"""What the paper prints, as plain data; it goes beside our numbers where the protocol is the paper's.

Arms have the names of their operators. `none` is the paper's MDLM, `linear` its TopK/LERP, `spherical` its SLERP, each
with the learned weight, k = 3 and 3 Karcher steps.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

LENGTH = 1024
NAMES = {"none": "MDLM", "linear": "TopK/LERP", "spherical": "SLERP"}
SCORES = ("generative_perplexity", "entropy", "mauve")

# Arm, steps -> for seeds 1, 2, 3: generative perplexity, entropy, MAUVE (the per-seed table).
_SEEDS = {
    ("none", 64): ((86.5890, 5.5833, 0.008825), (88.1641, 5.5872, 0.008535), (86.9929, 5.5841, 0.008415)),
    ("none", 128): ((73.5284, 5.5543, 0.011559), (73.1973, 5.5526, 0.011425), (72.7227, 5.5515, 0.011944)),
    ("none", 256): ((66.0873, 5.5272, 0.021002), (66.2462, 5.5271, 0.015042), (66.2172, 5.5256, 0.016703)),
    ("linear", 64): ((82.8026, 5.5846, 0.009850), (82.8806, 5.5846, 0.009039), (82.0693, 5.5819, 0.008481)),
    ("linear", 128): ((69.1745, 5.5504, 0.014883), (69.0338, 5.5517, 0.014448), (68.9927, 5.5516, 0.015215)),
    ("linear", 256): ((62.4244, 5.5256, 0.025190), (62.8213, 5.5234, 0.023010), (62.1231, 5.5278, 0.021034)),
    ("spherical", 64): ((73.2043, 5.5682, 0.012243), (72.0246, 5.5650, 0.012137), (72.2609, 5.5643, 0.010738)),
    ("spherical", 128): ((60.0222, 5.5310, 0.016672), (59.3822, 5.5289, 0.020155), (59.8854, 5.5288, 0.020005)),
    ("spherical", 256): ((54.2024, 5.5082, 0.040841), (53.1495, 5.5061, 0.035710), (53.8278, 5.5040, 0.029775)),
}
BY_SEED = {
    (arm, seed, steps, score): value
    for (arm, steps), rows in _SEEDS.items()
    for seed, row in enumerate(rows, 1)
    for score, value in zip(SCORES, row, strict=True)
}


class Printed(NamedTuple):
    """A mean with its sample standard deviation (main table) and 95 % half width (interval table), as printed."""

    mean: float
    std: float | None
    half_width: float | None


def _printed(steps: int, score: str, **arms: tuple[float, float | None, float | None]) -> dict[Any, Printed]:
    return {(arm, steps, score): Printed(*values) for arm, values in arms.items()}


# The main table and the interval table. T = 512 is one seed, and the main table has no entropies. Where the two tables
# print the same mean to different digits, the longer one is here.
MEANS: dict[tuple[str, int, str], Printed] = {
    **_printed(
        64,
        "generative_perplexity",
        none=(87.25, 0.82, 2.03),
        linear=(82.58, 0.45, 1.11),
        spherical=(72.50, 0.62, 1.55),
    ),
    **_printed(
        128,
        "generative_perplexity",
        none=(73.15, 0.41, 1.01),
        linear=(69.07, 0.10, 0.24),
        spherical=(59.76, 0.34, 0.84),
    ),
    **_printed(
        256,
        "generative_perplexity",
        none=(66.18, 0.08, 0.21),
        linear=(62.46, 0.35, 0.87),
        spherical=(53.73, 0.53, 1.33),
    ),
    **_printed(
        512,
        "generative_perplexity",
        none=(63.43, None, None),
        linear=(59.46, None, None),
        spherical=(51.01, None, None),
    ),
    **_printed(
        64, "entropy", none=(5.5849, None, 0.0051), linear=(5.5837, None, 0.0039), spherical=(5.5658, None, 0.0052)
    ),
    **_printed(
        128, "entropy", none=(5.5528, None, 0.0035), linear=(5.5512, None, 0.0018), spherical=(5.5296, None, 0.0031)
    ),
    **_printed(
        256, "entropy", none=(5.5266, None, 0.0022), linear=(5.5256, None, 0.0055), spherical=(5.5061, None, 0.0052)
    ),
    **_printed(
        64,
        "mauve",
        none=(0.00859, 0.0002, 0.00052),
        linear=(0.00912, 0.0007, 0.00171),
        spherical=(0.01171, 0.0008, 0.00209),
    ),
    **_printed(
        128,
        "mauve",
        none=(0.01164, 0.0003, 0.00067),
        linear=(0.01485, 0.0001, 0.00096),
        spherical=(0.01894, 0.0020, 0.00489),
    ),
    **_printed(
        256,
        "mauve",
        none=(0.01758, 0.0031, 0.00764),
        linear=(0.02308, 0.0021, 0.00516),
        spherical=(0.03544, 0.0055, 0.01376),
    ),
    **_printed(512, "mauve", none=(0.0199, None, None), linear=(0.0264, None, None), spherical=(0.0412, None, None)),
}


class Trained(NamedTuple):
    """A row of the paper's training tables; the angle in degrees."""

    perplexity: float
    nll: float
    weight: float
    angle: float | None = None


# At step 7,000, over 3 seeds.
REGIMES = {
    "none": Trained(24.20, 3.187, 0.000),
    "linear": Trained(24.32, 3.191, 0.030),
    "spherical": Trained(24.24, 3.188, 0.056, 73.1),
}
# At step 1,181: the setting's value -> the row. The setting that is not varied is 3.
ABLATIONS = {
    "karcher_steps": {
        1: Trained(24.48, 3.198, 0.059),
        3: Trained(24.58, 3.202, 0.035),
        5: Trained(24.47, 3.197, 0.060),
    },
    "top_k": {1: Trained(24.75, 3.209, 0.030), 3: Trained(24.58, 3.202, 0.035), 5: Trained(24.46, 3.197, 0.034)},
}


def paper_arm(train: Mapping[str, Any]) -> str | None:
    """The paper's arm that was trained with these settings, or None: it has no fixed weights and no other operators."""
    operator = train.get("operator")
    if operator == "none":
        return "none"
    as_there = train.get("fixed_weight") is None and train.get("top_k") == 3
    if operator == "spherical":
        as_there = as_there and train.get("karcher_steps") == 3
    return operator if operator in NAMES and as_there else None


def paper_ablation(setting: str, train: Mapping[str, Any]) -> Trained | None:
    """The paper's row for an arm of an ablation, or None."""
    other = {"karcher_steps": "top_k", "top_k": "karcher_steps"}.get(setting)
    if other is None or train.get("operator") != "spherical" or train.get("fixed_weight") is not None:
        return None
    return ABLATIONS[setting].get(train[setting]) if train.get(other) == 3 else None
