"""Ship a base run as `sotu-tiny`: its weights in bfloat16, and a model card with numbers that are measured here.

python docs/cards/sotu_tiny.py runs/sotu-tiny-base data/sotu-text8-128
"""

import json
import math
import shutil
import sys
from pathlib import Path
from string import Template

import numpy as np
import yaml

import arcmask
import arcmask.commands.tune
from arcmask import commands, figures
from arcmask.checkpoint import convert
from arcmask.data import open_prepared
from arcmask.diagnostics import predict, top_accuracy
from arcmask.evaluation import likelihood
from arcmask.run_folder import newest_checkpoint
from arcmask.settings.tune import TuneConfig

NAME = "sotu-tiny"
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "arcmask" / "checkpoint" / "shipped" / NAME
FIGURE = ROOT / "docs" / "figures" / "sotu-tiny.png"
SYMBOLS = 27


def trigram_bits(data: str) -> float:
    """Return the bits per character of held-out text under trigram counts, with 0.1 added to each count."""
    train, held_out = (
        open_prepared(data, split).rows(range(len(open_prepared(data, split)))).flatten().numpy()
        for split in ("train", "validation")
    )

    def codes(text: np.ndarray) -> np.ndarray:
        return (text[:-2] * SYMBOLS + text[1:-1]) * SYMBOLS + text[2:]

    counts = np.bincount(codes(train), minlength=SYMBOLS**3).reshape(-1, SYMBOLS) + 0.1
    shares = counts / counts.sum(1, keepdims=True)
    return float(-np.log2(shares.reshape(-1)[codes(held_out)]).mean())


def validations(run: Path) -> list[tuple[int, float]]:
    """Return the steps with a validation, and the bits per character at each."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    key = "validation_nll_plain"
    return [(line["step"], line[key] / math.log(2)) for line in lines if key in line]


def draw(losses: list[tuple[int, float]], trigram: float) -> None:
    """Draw the validation loss over training."""
    figure, axes = figures.figure(6.0, 3.4)
    steps, bits = zip(*losses, strict=True)
    with figures.styled():
        axes.plot(steps, bits, color=figures.colour("spherical"), marker="o", markersize=3, label=NAME)
        axes.axhline(trigram, color=figures.MUTED, linestyle="--", label="trigram counts")
        axes.set(xlabel="training step", ylabel="validation loss, bits per character")
        axes.legend()
    figures.save(figure, FIGURE, {"steps": steps, "bits": bits, "trigram": trigram})


def tune(data: str) -> None:
    """Fit feedback to the model as it is, and ship it with the model."""
    settings = TuneConfig(checkpoint=str(SHIPPED), data=data, out=f"{SHIPPED}-tuned", rows=256, held_out_rows=2048)
    commands.tune.run(settings)
    shutil.move(f"{SHIPPED}-tuned/feedback.json", SHIPPED / "feedback.json")
    shutil.rmtree(f"{SHIPPED}-tuned")


def main(run: Path, data: str) -> None:
    """Write the weights, the feedback, the figure and the card."""
    shutil.rmtree(SHIPPED, ignore_errors=True)
    convert(str(run), str(SHIPPED), dtype="bfloat16")
    (SHIPPED / "feedback.json").unlink(missing_ok=True)  # the base was trained without
    model = arcmask.load(SHIPPED).float()
    tune(data)
    settings = yaml.safe_load((run / "config.yaml").read_text())
    step = int(newest_checkpoint(run).name.removeprefix("step-"))
    corpus = open_prepared(data, "train")
    losses, trigram = validations(run), trigram_bits(data)
    draw(losses, trigram)
    bound = likelihood(model, data, rows=2048)["plain"]
    held_out = open_prepared(data, "validation")
    accuracy = top_accuracy(predict(model, held_out.rows(range(0, len(held_out), len(held_out) // 64))))
    samples = arcmask.sample(model, num=6, steps=64, seed=1, feedback=None)
    tokens = step * settings["batch_size"] * corpus.length
    rows = "\n".join(
        f"| {at:,} | {at * settings['batch_size'] * corpus.length:,} | {2**bits:.2f} | {bits:.3f} |"
        for at, bits in losses
    )
    triples = zip(accuracy.times, accuracy.top, accuracy.among, accuracy.frequent, strict=True)
    chances = "\n".join(f"| {t:.1f} | {top:.3f} | {among:.3f} | {common:.3f} |" for t, top, among, common in triples)
    texts = "\n".join(f"    {text}" for text in samples.texts or ())
    card = Template((Path(__file__).parent / "sotu-tiny.template.md").read_text()).substitute(
        name=NAME,
        parameters=f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        blocks=model.config.n_blocks,
        width=model.config.hidden_dim,
        length=corpus.length,
        tokens=f"{tokens:,}",
        steps=f"{step:,}",
        planned=f"{settings['steps']:,}",
        batch=settings["batch_size"],
        epochs=f"{tokens / corpus.length / len(corpus):.2f}",
        bits=f"{bound['bits_per_byte']:.3f}",
        error=f"{bound['standard_error'] / math.log(2):.3f}",
        perplexity=f"{bound['perplexity']:.2f}",
        held_out=f"{bound['rows']:,}",
        trigram=f"{trigram:.3f}",
        data=data,
        validations=rows,
        chances=chances,
        texts=texts,
    )
    (SHIPPED / "README.md").write_text(card)
    print(card)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
