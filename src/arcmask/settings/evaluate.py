"""The settings of `arcmask evaluate`."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.settings import MAX_LENGTH, MAX_SEED, PRECISIONS, Precision

KMEANS_SEEDS = (25, 26, 27)
SMOLLM2 = "smollm2-135m"  # the evaluator that needs no model hub
Start = Literal["end-of-text", "none"]


@dataclass(frozen=True, kw_only=True)
class PerplexitySettings:
    """How the evaluator reads a text. A perplexity depends on all of these.

    Args:
        context: Tokens that the evaluator sees at a time, at most its own maximum.
        stride: Tokens between the starts of two windows of a longer text. Default: half the context.
        start: What precedes the first token: end-of-text (the first token is counted), or none (it is not).
    """

    context: int = 1024
    stride: int | None = None
    start: Start = "end-of-text"

    def __post_init__(self) -> None:
        check_range(2, MAX_LENGTH, self, "context")
        if self.stride is not None and not 1 <= self.stride < self.context:
            raise ArcmaskError(f"the stride is {self.stride}, but must lie between 1 and {self.context - 1}")
        check_choice("start", self.start, ("end-of-text", "none"))

    def fitted(self, max_length: int | None) -> "PerplexitySettings":
        """Fill in the defaults for an evaluator that takes at most `max_length` tokens."""
        context = self.context if max_length is None else min(self.context, max_length)
        stride = context // 2 if self.stride is None else min(self.stride, context - 1)
        return PerplexitySettings(context=context, stride=stride, start=self.start)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What to score, and with which models and reference text.

    Args:
        samples: Sets of samples: .jsonl files (as `arcmask sample` writes them, or with a "text" per line), text files
            with one sample per line, or folders with one sample per file.
        reference: Real text for the real-word rate and MAUVE: a prepared folder, or anything that samples can be.
        nearest: A prepared folder with one document per row. Each sample is compared with its training rows: the number
            of edits to the nearest row, and the share of distinct samples.
        evaluator: The causal LM for generative perplexity: smollm2-135m, a folder, a hub id (gpt2-large), or none.
        features: The causal LM whose features MAUVE compares: evaluator (the same one), a name as above, or none.
        tokenizer: The tokenizer for the entropy: gpt2, text8, a tokenizer's folder or hub:NAME. Default: the tokens in
            the samples; without them, the reference's tokenizer or gpt2.
        bad_lines: What to do with a line that cannot be read: stop, or skip it with a warning.
        mauve_seed: The seed of MAUVE's clustering; 25 is mauve-text's own. Without one, MAUVE is the mean over
            kmeans_seeds. With one, the mean is a score of its own.
        kmeans_seeds: Seeds of MAUVE's clustering, over which a mean is taken.
        seed: Seed of the bootstrap intervals, of the reference texts, and of the likelihood's rows and noise.
        batch_tokens: Tokens per batch. It changes speed and memory, not the scores. Default: what suits the device.
        precision: auto, float32 or bfloat16.
        checkpoint: A denoiser whose likelihood to compute as well: a folder, a run, a Lightning .ckpt or a hub id.
        operator: FILE.py:FUNCTION, for a checkpoint that was trained with an operator of your own.
        data: The prepared folder whose validation rows the likelihood uses.
        rows: Number of rows for the likelihood. Default: all.
        out: The file to write; null for none. One that was written with the same settings is replaced.
        overwrite: Replace any file.
    """

    samples: tuple[str, ...] = ()
    reference: str | None = None
    nearest: str | None = None
    evaluator: str = SMOLLM2
    features: str = "evaluator"
    tokenizer: str | None = None
    perplexity: PerplexitySettings = PerplexitySettings()
    bad_lines: Literal["stop", "skip"] = "stop"
    mauve_seed: int | None = None
    kmeans_seeds: tuple[int, ...] = KMEANS_SEEDS
    seed: int = 0
    batch_tokens: int | None = None
    precision: Precision = "auto"
    checkpoint: str | None = None
    operator: str | None = None
    data: str | None = None
    rows: int | None = None
    out: str | None = "scores.json"
    overwrite: bool = field(default=False, metadata={"flag": True})

    def __post_init__(self) -> None:
        if not self.samples and self.checkpoint is None:
            raise ArcmaskError("there is nothing to evaluate; give SAMPLES, or --checkpoint and --data")
        if (self.checkpoint is None) != (self.data is None):
            present, missing = ("checkpoint", "data") if self.data is None else ("data", "checkpoint")
            raise ArcmaskError(f"a likelihood needs --checkpoint and --data; {present} is given, {missing} is not")
        repeated = {name for name in self.samples if self.samples.count(name) > 1}
        if repeated:
            raise ArcmaskError(f"{min(repeated)} is given twice as a set of samples")
        check_choice("precision", self.precision, PRECISIONS)
        check_range(1, 10**9, self, "batch_tokens", "rows")
        check_range(0, MAX_SEED, self, "seed")
        check_kmeans_seeds(self)
        if self.features == "evaluator" and self.evaluator == "none":
            object.__setattr__(self, "features", "none")

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        of_evaluator = ("context", "stride", "start", "batch_tokens", "precision")
        of_mauve = ("mauve_seed", "kmeans_seeds")
        of_samples = (
            "reference",
            "nearest",
            "evaluator",
            "features",
            "tokenizer",
            "bad_lines",
            *of_mauve,
            *of_evaluator,
        )
        reasons: dict[str, str] = {}
        if self.checkpoint is None:
            reasons |= dict.fromkeys(("operator", "rows"), "there is no checkpoint")
        if self.features == "none":
            reasons |= dict.fromkeys(of_mauve, "features is none, so there is no MAUVE")
        elif self.reference is None:
            reasons |= dict.fromkeys(("features", *of_mauve), "MAUVE needs a reference")
        if self.evaluator == self.features == "none":
            reasons |= dict.fromkeys(of_evaluator, "evaluator and features are none")
        if not self.samples:
            reasons |= dict.fromkeys(of_samples, "there are no samples to score")
        return reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that the scores depend on, as the file stores them."""
        settings = asdict(self)
        for name in ("batch_tokens", "out", "overwrite", *(() if self.nearest else ("nearest",))):
            del settings[name]  # files from before `nearest` have none
        return json.loads(json.dumps(settings))


def check_kmeans_seeds(settings: Any) -> None:
    """Raise unless the `mauve_seed` and `kmeans_seeds` of some settings are seeds, at least one, each once."""
    check_range(0, 2**31 - 1, settings, "mauve_seed", "kmeans_seeds")
    seeds = settings.kmeans_seeds
    if not seeds:
        raise ArcmaskError("kmeans_seeds is empty, but MAUVE needs at least one")
    if len(set(seeds)) != len(seeds):
        raise ArcmaskError(f"kmeans_seeds are {', '.join(map(str, seeds))}, but each must occur once")
