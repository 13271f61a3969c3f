"""Perplexity and features of 512 samples of 128 tokens: length-sorted batches against a plain loop, one at a time."""

import os
import time

import torch

from arcmask.evaluation import Evaluator, PerplexitySettings, open_evaluator
from arcmask.evaluation.evaluator import END
from arcmask.evaluation.mauve import text_features
from arcmask.evaluation.perplexity import text_losses
from arcmask.model import has_fast_bfloat16
from benchmarks.measure import table, use_threads

SAMPLES, TOKENS = 512, 128
SETTINGS = PerplexitySettings()


def some_texts(evaluator: Evaluator, count: int) -> list[str]:
    """Texts that come back as 128 tokens or nearly so: tokens drawn at random, written out."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(100, len(evaluator.tokenizer), (count, TOKENS), generator=draw).tolist()
    texts = [evaluator.tokenizer.decode(row).replace(END, " ") for row in ids]
    return [evaluator.tokenizer.decode(row[:TOKENS]) for row in evaluator.encode(texts)]


def plain_losses(evaluator: Evaluator, texts: list[str]) -> None:
    """As one would write it down: transformers' own loss, a text at a time."""
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([evaluator.tokenizer.encode(END + text)])
            float(evaluator.model(ids, labels=ids).loss)


def plain_features(evaluator: Evaluator, texts: list[str]) -> None:
    """As mauve-text does it by default: all hidden states, a text at a time."""
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([evaluator.tokenizer.encode(text)])
            evaluator.model(ids, output_hidden_states=True).hidden_states[-1][0, -1].numpy()


def run() -> None:
    """Print the table. ARCMASK_BENCH_SAMPLES makes it shorter."""
    count = int(os.environ.get("ARCMASK_BENCH_SAMPLES", SAMPLES))
    print(f"evaluation: smollm2-135m, {count} samples of {TOKENS} tokens; {use_threads(2)}")
    evaluators = {"float32": open_evaluator("smollm2-135m", precision="float32")}
    if has_fast_bfloat16("cpu"):
        evaluators["bfloat16"] = open_evaluator("smollm2-135m", precision="bfloat16")
    else:
        print("bfloat16 is left out: this processor has no bfloat16 products, and emulated ones take minutes")
    plain = evaluators["float32"]
    texts = some_texts(plain, count)
    tokens = sum(map(len, plain.encode(texts)))

    found: list[tuple[str, ...]] = []
    for name, slow, fast in (
        ("perplexity", plain_losses, text_losses),
        ("features", plain_features, text_features),
    ):
        slow(plain, texts[:2])
        # In two halves, taken in turns, so that a slow moment hits both alike.
        base, seconds = 0.0, dict.fromkeys(evaluators, 0.0)
        for half in (texts[: count // 2], texts[count // 2 :]):
            start = time.perf_counter()
            slow(plain, half)
            base += time.perf_counter() - start
            for precision, evaluator in evaluators.items():
                start = time.perf_counter()
                fast(evaluator, half, SETTINGS, cache=None)
                seconds[precision] += time.perf_counter() - start
        found.append((f"{name}, plain loop", "float32", f"{base:.1f}", f"{tokens / base:.0f}", "1.00"))
        for precision, taken in seconds.items():
            cells = (f"{taken:.1f}", f"{tokens / taken:.0f}", f"{base / taken:.2f}")
            found.append((f"{name}, in batches", precision, *cells))
    print("\n" + table(found, ("work", "precision", "seconds", "tokens/s", "plain / it")))
