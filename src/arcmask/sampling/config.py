"""The settings of `arcmask sample`. Imports nothing heavy: it is read for `--help`."""

from dataclasses import dataclass
from fractions import Fraction

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """What to sample, from what, how.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        num: How many samples.
        length: Positions in a sample. By default the model's, or those of a prompt with holes.
        steps: Denoising steps. By default 64, or as many as the budget gives.
        budget: Steps as a share of the length, such as 1/16; instead of steps.
        feedback: An operator's name, or none. By default what the checkpoint was trained with.
        prompt: Text that every sample begins with; [MASK] in it is a hole to fill.
        rule: The step rule: ancestral, first-hitting, confidence, remask-cap or remask-loop.
        temperature: Below 1 sharpens the predictions that tokens are drawn from.
        top_p: The share of probability that tokens are drawn from.
        drop_crossing: Leave out the token that crosses top_p, as the code of the paper's precursor does.
        top_k: The number of most probable tokens that tokens are drawn from.
        seed: Sample i depends on the seed and i alone.
        batch_size: Samples at a time; changes nothing but speed and memory.
        precision: auto, float32 or bfloat16.
        out: The file to write, a JSON object a line; without it, texts are printed.
    """

    checkpoint: str
    num: int = 1
    length: int | None = None
    steps: int | None = None
    budget: str | None = None
    feedback: str | None = None
    prompt: str | None = None
    rule: str = "ancestral"
    temperature: float = 1.0
    top_p: float = 1.0
    drop_crossing: bool = False
    top_k: int | None = None
    seed: int = 0
    batch_size: int = 8
    precision: str = "auto"
    out: str | None = None

    def __post_init__(self) -> None:
        if self.num < 0:
            raise ArcmaskError(f"num is {self.num}, but must be 0 or more")
        if self.batch_size < 1:
            raise ArcmaskError(f"batch_size is {self.batch_size}, but must be 1 or more")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ArcmaskError(f"unknown precision {self.precision!r}; choose one of: auto, bfloat16, float32")
        if self.steps is not None and self.budget is not None:
            raise ArcmaskError(f"steps is {self.steps} and budget is {self.budget}; give one of them")
        if self.budget is not None:
            self.steps_for(1)

    def steps_for(self, length: int) -> int:
        """The number of steps for samples of that length."""
        if self.budget is None:
            return 64 if self.steps is None else self.steps
        try:
            share = Fraction(self.budget)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if share <= 0:
            raise ArcmaskError(f"the budget is {self.budget!r}, but must be a share above 0, such as 1/16")
        return max(1, round(share * length))
