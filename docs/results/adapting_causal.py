"""Turn SmolLM2-135M, a causal language model, into a denoiser, and print what it is worth before and after training.

python docs/results/adapting_causal.py runs/adapting                                      # about two hours of one core
python docs/results/adapting_causal.py runs/trial --steps 3 --numbers runs/trial/numbers.json  # a trial

The model is the default evaluator's, so that no model hub is needed. The folder gets the adapted base, the rows and the
training run; the numbers of both checkpoints are kept in adapting_causal.json beside this file. If the script is
interrupted, run it again; it resumes. The training is also the command that it prints.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import arcmask
from arcmask.data import open_prepared
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import fetch_smollm2
from arcmask.feedback import Confidence, SoftMask
from arcmask.files import write_whole
from arcmask.objective import TwoPass, likelihood_bound

NUMBERS = Path(__file__).with_suffix(".json")
LENGTH, STEPS, BATCH = 128, 1200, 8
TRAINING = {"batch_size": BATCH, "micro_batch": BATCH, "learning_rate": 1e-4, "warm_up": 20, "ema": 0.99, "seed": 1}
TRAINING |= {"precision": "bfloat16", "save_every": 100, "keep": 1, "validate_every": 100, "validation_rows": 32}
BOUND_ROWS, GAIN_ROWS, SAMPLES, SAMPLE_LENGTH, SAMPLE_STEPS = 256, 32, 16, 64, 32
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5)
OPERATORS = ("linear", "spherical")
SCORES = ("generative_perplexity", "entropy", "distinct_2", "real_word_rate")


def prepare(folder: Path) -> None:
    """Write the adapted base and the rows, unless they are there."""
    if not (folder / "base" / "config.json").is_file():
        arcmask.load(fetch_smollm2(), bidirectional=True, mask_token="<mask>").save(folder / "base")
    arcmask.prepare("sotu", folder / "data", tokenizer=folder / "base", length=LENGTH)


def train(folder: Path, steps: int) -> None:
    """Continue the training with the diffusion loss, without feedback."""
    words = " ".join(f"--{name} {value}" for name, value in TRAINING.items())
    print(
        f"arcmask train --data {folder}/data --init {folder}/base --run {folder}/run --operator none --steps {steps}",
        words,
    )
    arcmask.train(folder / "base", folder / "data", folder / "run", operator=None, steps=steps, **TRAINING)


def measure_bound(denoiser: Any, data: Path) -> dict[str, float]:
    """Return the plain bound on held-out rows."""
    held_out = open_prepared(data, "validation")
    rows = held_out.rows(held_out.spread(BOUND_ROWS))
    bound = likelihood_bound(TwoPass(denoiser, None), rows.split(BATCH), feedback=False)
    numbers = {"nats": bound.nats, "half_width": 1.96 * bound.standard_error}
    return numbers | {"bits_per_byte": bound.bits_per_byte(held_out.bytes_per_token)}


def measure_gain(denoiser: Any, data: Path) -> dict[str, Any]:
    """Return the gain curve."""
    held_out = open_prepared(data, "validation")
    rows = held_out.rows(held_out.spread(GAIN_ROWS))
    curve = asdict(arcmask.diagnostics.gain_curve(denoiser, rows, OPERATORS, WEIGHTS, batch_size=BATCH))
    return {key: curve[key] for key in ("plain", "weights", "difference", "half_width")}


def measure_samples(denoiser: Any, data: Path) -> dict[str, Any]:
    """Return the scores of samples without and with feedback, and the first of them."""
    arms = {"none": None, **{name: SoftMask(name, confidence=Confidence(fixed=0.3)) for name in OPERATORS}}
    samples = {
        name: arcmask.sample(denoiser, SAMPLES, SAMPLE_LENGTH, SAMPLE_STEPS, feedback, seed=1)
        for name, feedback in arms.items()
    }
    scores = arcmask.evaluate(*samples.values(), reference=data, overwrite=True)["sets"]
    return {
        name: {
            "scores": {key: score["value"] for key, score in one["scores"].items()},
            "texts": samples[name].texts[:3],
        }
        for name, one in zip(arms, scores.values(), strict=True)
    }


PARTS = {"bound": measure_bound, "gain": measure_gain, "samples": measure_samples}


def table(numbers: dict) -> str:
    """Return the numbers before and after as Markdown."""
    lines = ["| | before | after |", "|---|---|---|"]
    sides = [numbers["before"], numbers["after"]]

    def add(name: str, *values: str) -> None:
        lines.append(f"| {name} | {' | '.join(values)} |")

    add("steps of training", *(str(side["steps"]) for side in sides))
    bounds = [side["bound"] for side in sides]
    add(
        f"bound, nats per token ({BOUND_ROWS} rows)",
        *(f"{bound['nats']:.3f} ± {bound['half_width']:.3f}" for bound in bounds),
    )
    add("bound, bits per byte", *(f"{bound['bits_per_byte']:.3f}" for bound in bounds))
    for operator in OPERATORS:
        for index, weight in enumerate(WEIGHTS[1:], 1):
            cells = [side["gain"] for side in sides]
            pairs = [(cell["difference"][operator][index], cell["half_width"][operator][index]) for cell in cells]
            add(
                f"change of the bound, {operator}, weight {weight:g} ({GAIN_ROWS} rows)",
                *(f"{mean:+.3f} ± {half:.3f}" for mean, half in pairs),
            )
    for score in SCORES:
        for arm in ("none", *OPERATORS):
            values = [side["samples"][arm]["scores"][score] for side in sides]
            add(f"{score}, {arm}", *("" if value is None else f"{value:.3f}" for value in values))
    return "\n".join(lines)


def main() -> None:
    """Do what is left, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--numbers", type=Path, default=NUMBERS)
    options = parser.parse_args()
    numbers = json.loads(options.numbers.read_text()) if options.numbers.exists() else {}
    prepare(options.folder)
    for name, model, steps in (("before", "base", 0), ("after", "run", options.steps)):
        if steps:
            train(options.folder, steps)
        if numbers.get(name, {}).get("steps") != steps:
            numbers[name] = {"steps": steps}
        for part in [part for part in PARTS if part not in numbers[name]]:
            numbers[name][part] = PARTS[part](arcmask.load(options.folder / model), options.folder / "data")
            write_whole(options.numbers, (json.dumps(numbers, indent=1) + "\n").encode())
    print(table(numbers))


if __name__ == "__main__":
    try:
        main()
    except ArcmaskError as error:  # such as a run that was stopped and saved
        raise SystemExit(str(error)) from error
