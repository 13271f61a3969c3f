"""The values that the paper prints, shown with ours if an experiment follows the paper's protocol.

The paper's arms are named by their operators: `none` (MDLM), `linear` (TopK/LERP) and `spherical` (SLERP), each with
the learned weight, k = 3 and 3 Karcher steps.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from arcmask.evaluation.statistics import relative_change

ARMS = ("none", "linear", "spherical")
_, COMPARED, PROPOSED = ARMS
SCORES = ("generative_perplexity", "entropy", "mauve")

# The per-seed table: arm and steps -> generative perplexity, entropy and MAUVE of seeds 1, 2 and 3.
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
    """A mean as the paper prints it: in the main table with its standard deviation, and in the interval table."""

    main: str | None
    interval: str | None

    @property
    def mean(self) -> float:
        """The mean, from the table with more digits."""
        return _numbers(self.interval or self.main or "")[0]

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds."""
        return _numbers(self.main)[1] if self.main and "\u00b1" in self.main else None

    @property
    def half_width(self) -> float | None:
        """Half the width of the 95 % confidence interval."""
        return None if self.interval is None else _numbers(self.interval)[1]


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split("\u00b1")]


# Score and steps, then for each arm the value of the main table and that of the interval table ("-": not printed).
# T = 512 has one seed, and the main table has no entropies.
_MEANS = """
generative_perplexity  64 | 87.25±0.82 | 87.25±2.03 | 82.58±0.45 | 82.58±1.11 | 72.50±0.62 | 72.50±1.55
generative_perplexity 128 | 73.15±0.41 | 73.15±1.01 | 69.07±0.10 | 69.07±0.24 | 59.76±0.34 | 59.76±0.84
generative_perplexity 256 | 66.18±0.08 | 66.18±0.21 | 62.46±0.35 | 62.46±0.87 | 53.73±0.53 | 53.73±1.33
generative_perplexity 512 | 63.43 | - | 59.46 | - | 51.01 | -
entropy  64 | - | 5.5849±0.0051 | - | 5.5837±0.0039 | - | 5.5658±0.0052
entropy 128 | - | 5.5528±0.0035 | - | 5.5512±0.0018 | - | 5.5296±0.0031
entropy 256 | - | 5.5266±0.0022 | - | 5.5256±0.0055 | - | 5.5061±0.0052
mauve  64 | 0.0086±0.0002 | 0.00859±0.00052 | 0.0091±0.0007 | 0.00912±0.00171 | 0.0117±0.0008 | 0.01171±0.00209
mauve 128 | 0.0116±0.0003 | 0.01164±0.00067 | 0.0148±0.0001 | 0.01485±0.00096 | 0.0189±0.0020 | 0.01894±0.00489
mauve 256 | 0.0176±0.0031 | 0.01758±0.00764 | 0.0231±0.0021 | 0.02308±0.00516 | 0.0354±0.0055 | 0.03544±0.01376
mauve 512 | 0.0199 | - | 0.0264 | - | 0.0412 | -
"""


def _read_means() -> dict[tuple[str, int, str], Printed]:
    means = {}
    for line in _MEANS.strip().splitlines():
        key, *cells = (part.strip() for part in line.split("|"))
        score, steps = key.split()
        values = [None if cell == "-" else cell.replace("±", " ± ") for cell in cells]
        for arm, main, interval in zip(ARMS, values[::2], values[1::2], strict=True):
            means[arm, int(steps), score] = Printed(main, interval)
    return means


MEANS = _read_means()


class Trained(NamedTuple):
    """A row of the paper's training tables as printed, with the angle in degrees."""

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
# At step 1,181: the setting's value -> the row. The other setting is 3.
ABLATIONS = {
    "karcher_steps": {1: Trained("24.48", "3.198", "0.059"), 3: _AT_THREE, 5: Trained("24.47", "3.197", "0.060")},
    "top_k": {1: Trained("24.75", "3.209", "0.030"), 3: _AT_THREE, 5: Trained("24.46", "3.197", "0.034")},
}


# The table of hyper-parameters: our setting -> its name, the paper's symbol and value.
HYPERPARAMETERS: dict[str, tuple[str, str, Any]] = {
    "operator": ("Operator", "feedback_alg", PROPOSED),
    "top_k": ("Candidates", "k", 3),
    "karcher_steps": ("Karcher steps", "N_iter", 3),
    "scale": ("Initial scale of the weight", "\u03c9_s", 0.5),
    "centre": ("Initial centre of the weight", "\u03c9_b", -4.0),
    "steepness": ("Initial steepness of the weight", "\u03c9_a", 6.67),
    "gate_probability": ("Probability of feedback", "p_sm", 0.5),
    "band": ("Time band", "b_l, b_h", (0.2, 0.8)),
    "confidence_learning_rate": ("Learning rate of the weight", "\u03b7_sm", 1e-2),
    "learning_rate": ("Learning rate of the backbone", "\u03b7_bb", 3e-5),
    "clamp": ("Clamping tolerance", "\u03b5", 1e-6),
    "collinear": ("Threshold of collinearity", "\u03b4", 1e-6),
}
# The same for what the paper's text says.
IN_TEXT: dict[str, tuple[str, str, Any]] = {
    "base": ("Base model", "", "169M MDLM, OpenWebText"),
    "length": ("Positions of a row", "L", 1024),
    "steps": ("Training steps", "", 7000),
    "seeds": ("Seeds", "", (1, 2, 3)),
    "budgets": ("Denoising steps", "T", (64, 128, 256, 512)),
    "samples": ("Samples of a cell", "", 5000),
    "precision": ("Precision", "", "bfloat16, the operators float32"),
    "evaluator": ("Evaluator", "", "GPT-2 large"),
    "features": ("Features of MAUVE", "", "mauve-text\u2019s default"),
}
# The appendix's comparison of the two operators: row -> linear, spherical.
COMPARISON = {
    "domain": ("probability simplex", "unit hypersphere"),
    "path": ("linear (chord)", "spherical (geodesic, SLERP)"),
    "mean": ("weighted Euclidean mean", "Fr\u00e9chet mean on the sphere"),
    "input": ("sparse (B, L, k + 1) indices and weights", "dense (B, L, D) embeddings"),
    "settings": ("none", "Karcher steps"),
    "overhead": ("negligible", "k \u00d7 Karcher steps trigonometric operations"),
}


def paper_gain(first: str, second: str, steps: int, score: str) -> float | None:
    """Return how far an arm's mean lies above another's, as a share, from the paper's main table; None if it is not."""
    means = [MEANS.get((arm, steps, score)) for arm in (first, second)]
    printed = [mean.main for mean in means if mean is not None and mean.main is not None]
    return relative_change(*(_numbers(text)[0] for text in printed)) if len(printed) == 2 else None


def paper_arm(train: Mapping[str, Any]) -> str | None:
    """Return the paper's arm with these settings, or None. The paper has no fixed weights and no other operators."""
    operator = train.get("operator")
    if operator == "none":
        return "none"
    as_there = train.get("fixed_weight") is None and train.get("top_k") == 3
    if operator == PROPOSED:
        as_there = as_there and train.get("karcher_steps") == 3
    return operator if operator in ARMS and as_there else None


def paper_ablation(setting: str, train: Mapping[str, Any]) -> Trained | None:
    """Return the paper's row for an arm of an ablation, or None."""
    other = {"karcher_steps": "top_k", "top_k": "karcher_steps"}.get(setting)
    if other is None or train.get("operator") != PROPOSED or train.get("fixed_weight") is not None:
        return None
    return ABLATIONS[setting].get(train[setting]) if train.get(other) == 3 else None
