"""The settings of `arcmask tune`."""

from dataclasses import dataclass, field
from typing import Literal

from arcmask.errors import check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED
from arcmask.settings.operators import OPERATOR_CHOICES


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """Which model to fit feedback to, on which text, and where to write it.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id. Its weights do not change.
        data: The folder that `arcmask prepare` wrote with the model's tokenizer.
        out: The folder to write: a copy of the checkpoint with the fitted feedback.
        operator: The feedback operator: {operators}.
        fixed: Fit one constant weight instead of the three confidence scalars.
        goal: What to improve: the likelihood bound, or generation (the quality of samples, compared with plain sampling
            at equal entropy; it fits a constant weight and takes minutes).
        rows: Rows of training text to fit on.
        held_out_rows: Rows of held-out text to measure the gain on.
        samples: Samples of generation per weight.
        steps: Denoising steps of generation.
        evaluator: The model whose loss is the quality of samples. Default: none; the quality is the share of words that
            occur in the text.
        top_k: Number of candidates that are fed back.
        karcher_steps: Karcher steps of the Fréchet mean.
        seed: Seed of the times and masks.
        mask_id: The mask's id, for a checkpoint that does not say.
    """

    checkpoint: str
    data: str
    out: str
    operator: str = "spherical"
    fixed: bool = field(default=False, metadata={"flag": True})
    goal: Literal["bound", "generation"] = "bound"
    rows: int = 128
    held_out_rows: int = 512
    samples: int = 96
    steps: int = 64
    evaluator: str = "none"
    top_k: int = 3
    karcher_steps: int = 3
    seed: int = 0
    mask_id: int | None = None

    def __post_init__(self) -> None:
        check_range(4, 10**6, self, "rows")
        check_range(2, 10**6, self, "held_out_rows", "samples")
        check_range(1, MAX_LENGTH, self, "steps")
        check_range(1, 10**6, self, "top_k")
        check_range(0, 1000, self, "karcher_steps")
        check_range(0, MAX_SEED - 1, self, "seed", "mask_id")

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        if self.goal == "bound":
            return dict.fromkeys(("samples", "steps", "evaluator"), "the goal bound draws no samples")
        reasons = dict.fromkeys(("rows", "held_out_rows"), "the goal generation measures samples, not rows")
        return reasons | {"fixed": "the goal generation always fits a constant weight"}


TuneConfig.__doc__ = (TuneConfig.__doc__ or "").replace("{operators}", OPERATOR_CHOICES)
