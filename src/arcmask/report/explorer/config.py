"""The settings of `arcmask explore`. Imports nothing heavy: it is read for `--help`."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields

from arcmask.errors import ArcmaskError
from arcmask.sampling.config import SampleConfig


@dataclass(frozen=True, kw_only=True)
class ExploreConfig:
    """What to watch, and where to write the page.

    Args:
        checkpoint: A folder, a run, a Lightning .ckpt or a hub id.
        prompt: Text that the sample begins with; [MASK] in it is a hole to fill.
        feedback: The arms to show side by side, operators' names or none, from the same seed.
        steps: Denoising steps.
        length: Positions. By default 128 or twice the prompt, at most the model's; or those of a prompt with holes.
        rule: The step rule: ancestral, first-hitting, confidence, remask-cap or remask-loop.
        temperature: Below 1 sharpens the predictions that tokens are drawn from.
        top_p: The share of probability that tokens are drawn from.
        top_k: The number of most probable tokens that tokens are drawn from.
        seed: The same seed gives the same page.
        precision: auto, float32 or bfloat16.
        out: The file to write.
        open: Open the page in a browser.
    """

    checkpoint: str
    prompt: str | None = None
    feedback: Sequence[str] = ("spherical", "linear", "none")
    steps: int = 64
    length: int | None = None
    rule: str = "ancestral"
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0
    precision: str = "auto"
    out: str = "explore.html"
    open: bool = False

    def __post_init__(self) -> None:
        if not self.feedback:
            raise ArcmaskError("feedback names no arm; give at least one, such as spherical or none")
        twice = [name for i, name in enumerate(self.feedback) if name in self.feedback[:i]]
        if twice:
            raise ArcmaskError(f"the arm {twice[0]!r} is given twice; an arm can be shown once")
        self.sample()

    def sample(self) -> SampleConfig:
        """What is sampled, whatever the arm."""
        return SampleConfig(
            checkpoint=self.checkpoint,
            prompt=self.prompt,
            steps=self.steps,
            length=self.length,
            rule=self.rule,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self.seed,
            precision=self.precision,
        )

    def command(self) -> str:
        """The command line that makes the same page: what matters most, and whatever is not as by default."""
        always = ("prompt", "feedback", "steps", "seed")
        words = ["arcmask", "explore", self.checkpoint]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("checkpoint", "open") or value is None:
                continue
            if field.name in always or value != field.default:
                given = [*value] if field.name == "feedback" else [str(value)]
                # A text that begins with a dash would be taken for an option.
                words += [f"--{field.name}={given[0]}"] if given[0].startswith("-") else [f"--{field.name}", *given]
        return shlex.join(words)
