"""The settings of `arcmask explore`."""

import shlex
from dataclasses import dataclass, field, fields

from arcmask.errors import ArcmaskError
from arcmask.settings.sample import SampleConfig

_SHOWN = ("prompt", "steps", "seed")  # settings that the page's command shows even at their defaults


@dataclass(frozen=True, kw_only=True)
class ExploreConfig:
    """The sample to show, and the page to write.

    Args:
        feedback: The arms to show side by side, from the same seed: operator names, FILE.py:FUNCTION, or none.
        length: Positions. Default: 128 or twice the prompt, at most the model's length; or that of a prompt with holes.
        out: The file to write. One that the same command wrote is replaced.
        overwrite: Replace any file.
        open: Open the page in a browser.
    """

    sample: SampleConfig = field(metadata={"leave_out": ("num", "batch_size", "prompts")})
    feedback: tuple[str, ...] = ("spherical", "linear", "none")
    out: str = "explore.html"
    overwrite: bool = field(default=False, metadata={"flag": True})
    open: bool = field(default=False, metadata={"flag": True})

    def __post_init__(self) -> None:
        if not self.feedback:
            raise ArcmaskError("feedback names no arm; give at least one, such as spherical or none")
        repeated = [name for i, name in enumerate(self.feedback) if name in self.feedback[:i]]
        if repeated:
            raise ArcmaskError(f"the arm {repeated[0]!r} is given twice; an arm can be shown once")

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        return {"band": "no arm has feedback"} if set(self.feedback) == {"none"} else {}

    def command(self) -> str:
        """Return the command line that writes the same page: the main settings, and those that are not the default."""
        words = ["arcmask", "explore", self.sample.checkpoint]
        for setting in fields(SampleConfig):
            value = getattr(self.sample, setting.name)
            if setting.name == "steps" and value is None and self.sample.budget is None:
                value = self.sample.steps_for(1)
            if setting.name == "checkpoint" or value is None:
                continue
            if setting.name in _SHOWN or value != setting.default:
                words += _option(setting.name, *map(str, value if isinstance(value, tuple) else (value,)))
        words += _option("feedback", *self.feedback)
        return shlex.join(words + (_option("out", self.out) if self.out != "explore.html" else []))


def _option(name: str, *values: str) -> list[str]:
    """Return the words of an option; a value that starts with a dash is joined to it by an equals sign."""
    return [f"--{name}={values[0]}"] if values[0].startswith("-") else [f"--{name}", *values]
