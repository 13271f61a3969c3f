"""Time perplexity and features of 512 samples: batches sorted by length against a loop over single texts."""

import time
from collections.abc import Callable

import torch

from arcmask.evaluation import Evaluator, PerplexitySettings, open_evaluator
from arcmask.evaluation.evaluator import END
from arcmask.evaluation.scores import text_features, text_losses
from arcmask.model import has_fast_bfloat16
from benchmarks.measure import table, use_threads

SAMPLES, LENGTHS = 512, (128, 24)
SETTINGS = PerplexitySettings()


def some_texts(evaluator: Evaluator, count: int, length: int) -> list[str]:
    """Return texts of about `length` random tokens."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(100, len(evaluator.tokenizer), (count, length), generator=draw).tolist()
    texts = [evaluator.tokenizer.decode(row).replace(END, " ") for row in ids]
    return [evaluator.tokenizer.decode(row[:length]) for row in evaluator.encode(texts)]


def plain_losses(evaluator: Evaluator, texts: list[str]) -> None:
    """Compute the loss of transformers, one text at a time."""
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([evaluator.tokenizer.encode(END + text)])
            float(evaluator.model(ids, labels=ids).loss)


def plain_features(evaluator: Evaluator, texts: list[str]) -> None:
    """Compute features as mauve-text does by default: all hidden states, one text at a time."""
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([evaluator.tokenizer.encode(text)])
            evaluator.model.base_model(ids, output_hidden_states=True).hidden_states[-1][0, -1].numpy()


def _timed(
    evaluators: dict[str, Evaluator], texts: list[str], plain: Callable[..., object], ours: Callable[..., object]
) -> tuple[float, dict[str, float]]:
    """Return the seconds of the plain loop and of ours per precision, in four parts so that noise affects all alike."""
    base, seconds = 0.0, dict.fromkeys(evaluators, 0.0)
    plain(evaluators["float32"], texts[:2])
    for part in range(4):
        chosen = texts[part::4]
        start = time.perf_counter()
        plain(evaluators["float32"], chosen)
        base += time.perf_counter() - start
        for precision, evaluator in evaluators.items():
            start = time.perf_counter()
            ours(evaluator, chosen, SETTINGS, cache=None)
            seconds[precision] += time.perf_counter() - start
    return base, seconds


def run(samples: int = SAMPLES, threads: int = 2) -> None:
    """Print the table."""
    print(f"evaluation: smollm2-135m, {samples} samples; {use_threads(threads)}")
    evaluators = {"float32": open_evaluator("smollm2-135m", precision="float32")}
    if has_fast_bfloat16("cpu"):
        evaluators["bfloat16"] = open_evaluator("smollm2-135m", precision="bfloat16")
    else:
        print("bfloat16 is left out: this CPU has no bfloat16 products, and emulated ones take minutes")
    rows: list[tuple[str, ...]] = []
    for length in LENGTHS:
        texts = some_texts(evaluators["float32"], samples, length)
        tokens = sum(map(len, evaluators["float32"].encode(texts)))
        for name, plain, ours in (
            ("perplexity", plain_losses, text_losses),
            ("features", plain_features, text_features),
        ):
            base, seconds = _timed(evaluators, texts, plain, ours)
            rows.append((f"{name}, {length} tokens, plain loop", "float32", f"{tokens / base:.0f}", "1.00"))
            for precision, taken in seconds.items():
                cells = (f"{tokens / taken:.0f}", f"{base / taken:.2f}")
                rows.append((f"{name}, {length} tokens, in batches", precision, *cells))
    print("\n" + table(rows, ("work", "precision", "tokens/s", "plain / it")))
