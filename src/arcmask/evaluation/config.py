"""The settings of `arcmask evaluate`. Imports nothing heavy: it is read for `--help`."""

from dataclasses import dataclass
from typing import Literal

from arcmask.errors import ArcmaskError, unknown_name

SMOLLM2 = "smollm2-135m"  # the evaluator that needs no model hub
Start = Literal["end-of-text", "none"]


@dataclass(frozen=True, kw_only=True)
class PerplexitySettings:
    """How a text is put before an evaluator; part of what a perplexity means.

    Args:
        context: Tokens that the evaluator sees at a time; or as many as it can, if that is less.
        stride: How far one window of a longer text lies behind the one before. By default half the context.
        start: What the first token follows: one end-of-text token, and it is counted; or none, and it is not.
    """

    context: int = 1024
    stride: int | None = None
    start: Start = "end-of-text"

    def __post_init__(self) -> None:
        if self.context < 2:
            raise ArcmaskError(f"the context is {self.context}, but must be at least 2 tokens")
        if self.stride is not None and not 1 <= self.stride < self.context:
            raise ArcmaskError(f"the stride is {self.stride}, but must lie between 1 and {self.context - 1}")
        if self.start not in ("end-of-text", "none"):
            raise unknown_name("start", self.start, ("end-of-text", "none"))

    def fitted(self, max_length: int | None) -> "PerplexitySettings":
        """The same with what was left open filled in, for an evaluator that takes so many tokens at most."""
        context = self.context if max_length is None else min(self.context, max_length)
        stride = context // 2 if self.stride is None else min(self.stride, context - 1)
        return PerplexitySettings(context=context, stride=stride, start=self.start)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to score, with what, against what.

    Args:
        samples: Sets of samples: .jsonl files (as `arcmask sample` writes them, or with a "text" a line), text files
            with a sample a line, or folders with a sample a file.
        reference: Real text for the real-word rate and MAUVE: a prepared folder, or anything that samples can be.
        evaluator: The causal LM for generative perplexity: smollm2-135m, a folder, a hub id (gpt2-large); or none.
        features: The causal LM whose features MAUVE compares: evaluator (the same), a name as above; or none.
        tokenizer: What entropy counts: gpt2, text8, a tokenizer's folder or hub:NAME. By default the tokens in the
            samples; where there are none, the reference's tokenizer, or gpt2.
        context: Tokens that the evaluator sees at a time.
        stride: How far a window of a longer text lies behind the one before. By default half the context.
        start: What a text's first token follows: one end-of-text token, or none (then it is not counted).
        bad_lines: What to do about a line that cannot be read: stop, or skip it and say so.
        kmeans_seeds: The seeds of MAUVE's clustering; their mean is the score.
        seed: For bootstrap intervals, the choice of reference texts, and the noise of the likelihood.
        batch_tokens: Tokens in a batch; changes nothing but speed and memory. By default what suits the device.
        precision: auto, float32 or bfloat16.
        checkpoint: A denoiser whose likelihood is to be found too: a folder, a run, a Lightning .ckpt or a hub id.
        data: The prepared folder whose validation rows the likelihood is of.
        rows: The likelihood's number of rows. By default all.
        out: The file to write.
    """

    samples: tuple[str, ...] = ()
    reference: str | None = None
    evaluator: str = SMOLLM2
    features: str = "evaluator"
    tokenizer: str | None = None
    context: int = 1024
    stride: int | None = None
    start: Start = "end-of-text"
    bad_lines: Literal["stop", "skip"] = "stop"
    kmeans_seeds: tuple[int, ...] = (25, 26, 27)
    seed: int = 0
    batch_tokens: int | None = None
    precision: str = "auto"
    checkpoint: str | None = None
    data: str | None = None
    rows: int | None = None
    out: str = "scores.json"

    def __post_init__(self) -> None:
        # A file of settings gives lists.
        object.__setattr__(self, "samples", tuple(self.samples))
        object.__setattr__(self, "kmeans_seeds", tuple(self.kmeans_seeds))
        if not self.samples and self.checkpoint is None:
            raise ArcmaskError("there is nothing to evaluate; give SAMPLES, or --checkpoint and --data")
        if (self.checkpoint is None) != (self.data is None):
            given, missing = ("checkpoint", "data") if self.data is None else ("data", "checkpoint")
            raise ArcmaskError(f"a likelihood needs --checkpoint and --data; {given} is given, {missing} is not")
        repeated = {name for name in self.samples if self.samples.count(name) > 1}
        if repeated:
            raise ArcmaskError(f"{min(repeated)} is given twice as a set of samples")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise unknown_name("precision", self.precision, ("auto", "float32", "bfloat16"))
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ArcmaskError(f"batch_tokens is {self.batch_tokens}, but must be 1 or more")
        if self.rows is not None and self.rows < 1:
            raise ArcmaskError(f"rows is {self.rows}, but must be 1 or more")
        if not self.kmeans_seeds:
            raise ArcmaskError("kmeans_seeds is empty, but MAUVE needs at least one")
        if self.features == "evaluator" and self.evaluator == "none":
            object.__setattr__(self, "features", "none")
        self.perplexity.fitted(None)

    @property
    def perplexity(self) -> PerplexitySettings:
        return PerplexitySettings(context=self.context, stride=self.stride, start=self.start)
