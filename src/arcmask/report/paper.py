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
    """A mean as the main table prints it, with its standard deviation, and as the interval table does, or None."""

    main: str | None
    interval: str | None

    @property
    def mean(self) -> float:
        """The one with more digits."""
        return _numbers(self.interval or self.main or "")[0]

    @property
    def std(self) -> float | None:
        """Over seeds."""
        return _numbers(self.main)[1] if self.main and "\u00b1" in self.main else None

    @property
    def half_width(self) -> float | None:
        """Of the 95 % interval."""
        return None if self.interval is None else _numbers(self.interval)[1]


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(" \u00b1 ")]


# Score, steps -> for each arm what the main table prints, and what the interval table does. T = 512 is one seed, and
# the main table has no entropies.
_MEANS: dict[tuple[str, int], tuple[tuple[str | None, str | None], ...]] = {
    ("generative_perplexity", 64): (
        ("87.25 ± 0.82", "87.25 ± 2.03"),
        ("82.58 ± 0.45", "82.58 ± 1.11"),
        ("72.50 ± 0.62", "72.50 ± 1.55"),
    ),
    ("generative_perplexity", 128): (
        ("73.15 ± 0.41", "73.15 ± 1.01"),
        ("69.07 ± 0.10", "69.07 ± 0.24"),
        ("59.76 ± 0.34", "59.76 ± 0.84"),
    ),
    ("generative_perplexity", 256): (
        ("66.18 ± 0.08", "66.18 ± 0.21"),
        ("62.46 ± 0.35", "62.46 ± 0.87"),
        ("53.73 ± 0.53", "53.73 ± 1.33"),
    ),
    ("generative_perplexity", 512): (("63.43", None), ("59.46", None), ("51.01", None)),
    ("entropy", 64): ((None, "5.5849 ± 0.0051"), (None, "5.5837 ± 0.0039"), (None, "5.5658 ± 0.0052")),
    ("entropy", 128): ((None, "5.5528 ± 0.0035"), (None, "5.5512 ± 0.0018"), (None, "5.5296 ± 0.0031")),
    ("entropy", 256): ((None, "5.5266 ± 0.0022"), (None, "5.5256 ± 0.0055"), (None, "5.5061 ± 0.0052")),
    ("mauve", 64): (
        ("0.0086 ± 0.0002", "0.00859 ± 0.00052"),
        ("0.0091 ± 0.0007", "0.00912 ± 0.00171"),
        ("0.0117 ± 0.0008", "0.01171 ± 0.00209"),
    ),
    ("mauve", 128): (
        ("0.0116 ± 0.0003", "0.01164 ± 0.00067"),
        ("0.0148 ± 0.0001", "0.01485 ± 0.00096"),
        ("0.0189 ± 0.0020", "0.01894 ± 0.00489"),
    ),
    ("mauve", 256): (
        ("0.0176 ± 0.0031", "0.01758 ± 0.00764"),
        ("0.0231 ± 0.0021", "0.02308 ± 0.00516"),
        ("0.0354 ± 0.0055", "0.03544 ± 0.01376"),
    ),
    ("mauve", 512): (("0.0199", None), ("0.0264", None), ("0.0412", None)),
}
MEANS = {
    (arm, steps, score): Printed(*printed)
    for (score, steps), row in _MEANS.items()
    for arm, printed in zip(NAMES, row, strict=True)
}


class Trained(NamedTuple):
    """A row of the paper's training tables, as printed; the angle in degrees."""

    perplexity: str
    nll: str
    weight: str
    angle: str | None = None


# At step 7,000, over 3 seeds.
REGIMES = {
    "none": Trained("24.20", "3.187", "0.000"),
    "linear": Trained("24.32", "3.191", "0.030"),
    "spherical": Trained("24.24", "3.188", "0.056", "73.1"),
}
_AT_THREE = Trained("24.58", "3.202", "0.035")
# At step 1,181: the setting's value -> the row. The setting that is not varied is 3.
ABLATIONS = {
    "karcher_steps": {1: Trained("24.48", "3.198", "0.059"), 3: _AT_THREE, 5: Trained("24.47", "3.197", "0.060")},
    "top_k": {1: Trained("24.75", "3.209", "0.030"), 3: _AT_THREE, 5: Trained("24.46", "3.197", "0.034")},
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
