"""The settings of `arcmask sample`."""

from dataclasses import dataclass
from fractions import Fraction

from arcmask.errors import ArcmaskError, check_band, check_choice, check_range
from arcmask.settings import MAX_LENGTH, PRECISIONS, Precision


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """The settings of samples from a checkpoint.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        num: Number of samples.
        length: Positions per sample. Default: the model's length, or that of a prompt with holes.
        steps: Denoising steps. Default: 64, or what the budget gives.
        budget: Steps as a fraction of the length, such as 1/16, in place of steps. All samples then have one length.
        feedback: The feedback operator: a name, FILE.py:FUNCTION, or none. Default: what the checkpoint was trained
            with.
        band: The interval of times that use feedback, such as 0.2 0.8. Default: what the checkpoint was trained with.
        reuse: After a step that changed no token, use its prediction again, without a pass and without feedback.
        stop_at_end: End a sample at its first end-of-text; what lies behind it is left out.
        prompt: Text that every sample starts with. Each [MASK] in it, or the model's own mask token, is a hole to fill.
        prompts: A file with a prompt in each line, in place of one prompt: lines of text, or .jsonl with a "text" each.
            Sample i takes prompt i, and starts again after the last one.
        rule: The step rule: ancestral, first-hitting, confidence, remask-cap or remask-loop.
        temperature: Softmax temperature of the draws.
        top_p: Nucleus sampling: the probability mass to draw from.
        drop_crossing: Leave out the token that crosses top_p, as the code of the paper's precursor does.
        top_k: Draw from the k most probable tokens.
        seed: Sample i depends only on the seed and on i.
        batch_size: Samples per batch. It changes speed and memory, not the samples.
        precision: auto, float32 or bfloat16.
        out: The .jsonl file to write. Without it, the texts are printed.

    >>> from arcmask.sampling import SampleConfig
    >>> SampleConfig(checkpoint="sotu-tiny", budget="1/16").steps_for(length=1024)
    64
    """

    checkpoint: str
    num: int = 1
    length: int | None = None
    steps: int | None = None
    budget: str | None = None
    feedback: str | None = None
    band: tuple[float, ...] | None = None
    reuse: bool = False
    stop_at_end: bool = False
    prompt: str | None = None
    prompts: str | None = None
    rule: str = "ancestral"
    temperature: float = 1.0
    top_p: float = 1.0
    drop_crossing: bool = False
    top_k: int | None = None
    seed: int = 0
    batch_size: int = 8
    precision: Precision = "auto"
    out: str | None = None

    def __post_init__(self) -> None:
        check_range(0, 10**7, self, "num")
        check_range(1, MAX_LENGTH, self, "length", "batch_size", "steps")
        check_choice("precision", self.precision, PRECISIONS)
        if self.band is not None:
            check_band(self.band)
        if self.steps is not None and self.budget is not None:
            raise ArcmaskError(f"steps is {self.steps} and budget is {self.budget}; give one of them")
        if self.prompt is not None and self.prompts is not None:
            raise ArcmaskError(f"prompt is {self.prompt!r} and prompts is {self.prompts}; give one of them")
        self.steps_for(1)

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        reasons: dict[str, str] = {}
        if self.feedback == "none":
            reasons["band"] = "there is no feedback"
        if self.top_p == 1:
            reasons["drop_crossing"] = "top_p is 1, which keeps all tokens"
        return reasons

    def steps_for(self, length: int) -> int:
        """Return the number of denoising steps for samples of that length."""
        if self.budget is None:
            return 64 if self.steps is None else self.steps
        try:
            # A decimal is read as a float first: a Fraction of 1e99999999 takes minutes.
            share = Fraction(self.budget) if "/" in self.budget or 0 < float(self.budget) <= 100 else Fraction(0)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not 0 < share <= 100:
            raise ArcmaskError(f"the budget is {self.budget!r}, but must be above 0 and at most 100, such as 1/16")
        return max(1, round(share * length))
