"""A small experiment folder with made-up numbers that agree with each other, in the layout that `reproduce` writes."""

import json
import math
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import paper
import yaml

from arcmask.recipes import find_experiment
from arcmask.settings.train import TrainConfig

STEPS, LENGTH, SAMPLES = 60, 128, 6
SEEDS, BUDGETS = (1, 2, 3), (16, 32, 64)
# Arm -> label, what its training changes, and how much it improves the scores.
ARMS: dict[str, tuple[str, dict[str, Any], float]] = {
    "none": ("no feedback", {"operator": "none"}, 0.0),
    "linear": ("linear", {"operator": "linear"}, 0.03),
    "spherical": ("spherical", {"operator": "spherical"}, 0.05),
}
WORDS = ("the", "of", "congress", "nation", "people", "and", "to", "great", "peace", "war", "states", "union", "we")
# The same without training: an arm's second field says how its frozen backbone is used.
FROZEN: dict[str, tuple[str, dict[str, Any], float]] = {
    "base": ("base", {"tune": None}, 0.0),
    "base-temperature-0.9": ("base, temperature 0.9", {"tune": None, "temperature": 0.9}, 0.01),
    "linear-tuned": ("linear (LERP), tuned", {"tune": {"operator": "linear", "fixed": False}}, 0.015),
    "spherical-tuned": ("spherical (SLERP), tuned", {"tune": {"operator": "spherical", "fixed": False}}, 0.02),
}
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 900, 300)  # as much of a picture as is looked at
NASTY = "<script>document.title='broken'</script> & \"quotes\" <b>bold</b>"


def train_settings(changes: dict[str, Any]) -> dict[str, Any]:
    """A whole TrainConfig as the plan has it: without the seed."""
    numbers = {"centre": -4.0, "steepness": 10 / 1.5, "learning_rate": 3e-5, "warm_up": 5, "steps": STEPS}
    settings = asdict(TrainConfig(**{"data": "data/sotu", "init": "sotu-tiny"} | numbers | changes))
    del settings["seed"]
    return settings | {"band": list(settings["band"])}


def metrics(changes: dict[str, Any], gain: float, seed: int, steps: int = STEPS) -> list[dict[str, Any]]:
    """A line a step as the training loop writes it. Seeds share their noise between arms, as real ones do."""
    draw, lines = np.random.default_rng(seed), []
    for step in range(1, steps + 1):
        noise, fed, jitter = draw.normal(scale=0.05), bool(draw.random() < 0.5), draw.normal()
        nll = 1.8 - 0.1 * step / STEPS + noise - gain * fed + 0.002 * jitter
        line = {"step": step, "loss": nll, "nll": nll, "perplexity": math.exp(nll), "masked": 1000, "feedback": fed}
        if fed and changes["operator"] != "none":
            weight = changes.get("fixed_weight") or 0.12 + gain * step / STEPS + 0.002 * seed
            spread = 0.0 if changes.get("fixed_weight") else 0.02
            line |= {"weight": weight, "weight_spread": spread, "angle": 1.27 + gain / 10 + 0.01 * jitter}
            line |= {"euclidean_angle": 1.26 + 0.01 * jitter}
        line |= {"gradient_norm": 0.7, "learning_rate": 3e-5, "tokens_per_second": 1e4, "memory_gb": 0.5}
        if step % 20 == 0:
            for name in ("plain",) if changes["operator"] == "none" else ("plain", "feedback"):
                nats = 1.78 - 0.1 * step / STEPS - gain * (name == "feedback")
                line |= {f"validation_nll_{name}": nats, f"validation_perplexity_{name}": math.exp(nats)}
        lines.append(line)
    return lines


def make_training(folder: Path, changes: dict[str, Any], gain: float, seed: int, steps: int = STEPS) -> Path:
    """A folder as `arcmask train` leaves it, without weights."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(train_settings(changes) | {"seed": seed}, sort_keys=False))
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in metrics(changes, gain, seed, steps))
    )
    return folder


def scores(gain: float, seed: int, budget: int, *, evaluator: str, mauve: bool) -> dict[str, Any]:
    """A cell's scores.json. The arm's gain is the same for every seed but for a little noise."""
    shared = np.random.default_rng([seed, budget]).normal()
    own = np.random.default_rng([seed, budget, round(gain * 1000)]).normal()

    def score(value: float, width: float, **details: Any) -> dict[str, Any]:
        return {"value": value, "interval": [value - width, value + width], **details}

    perplexity = 90 * (1 + 8 / budget) * (1 - 4 * gain) + 2 * shared + 0.4 * own
    words = 0.45 + 0.02 * math.log2(budget) + gain + 0.004 * shared + 0.002 * own
    found = {
        "generative_perplexity": score(
            perplexity, 6.0, per_word=9 * perplexity, bits_per_byte=2.3, tokens=2311, evaluator=evaluator,
            evaluator_sha256=evaluator + "-hash",
        ),
        "entropy": score(2.80 + 0.004 * shared + 0.001 * own, 0.01, tokenizer="text8"),
        "real_word_rate": score(words, 0.03, by_length=words - 0.05, words=1234, reference="sotu, training split"),
        "distinct_1": score(0.21, 0.01), "distinct_2": score(0.62, 0.02), "distinct_3": score(0.91, 0.02),
        "repetition": score(0.04, 0.01),
    }  # fmt: skip
    if mauve:
        value = 0.3 + 0.05 * math.log2(budget) + 2 * gain + 0.01 * shared
        details = {"std_over_seeds": 0.004, "kmeans_seeds": [25, 26, 27], "features": evaluator, "samples": 500}
        found["mauve"] = {"value": value, "interval": None, **details, "references": 500}
    return {"count": SAMPLES, "source": "samples.jsonl", "sha256": "0" * 64, "scores": found}


def samples(seed: int, budget: int, arm: str) -> list[dict[str, Any]]:
    """Lines as `arcmask sample --out` writes them; one holds text that is markup elsewhere."""
    draw = np.random.default_rng([seed, budget, len(arm)])
    texts = [" ".join(draw.choice(WORDS, 22)) for _ in range(SAMPLES)]
    texts[1] = NASTY
    settings = {"seed": seed, "steps": budget, "length": LENGTH, "rule": "ancestral", "temperature": 1.0, "top_p": 1.0}
    settings |= {"top_k": None, "prompt": None, "precision": "float32", "model": "0123456789abcdef"}
    return [{"index": i, "text": text, "tokens": [], "calls": budget, **settings} for i, text in enumerate(texts)]


def make_experiment(
    folder: Path,
    *,
    arms: dict[str, tuple[str, dict[str, Any], float]] = ARMS,
    seeds: tuple[int, ...] = SEEDS,
    budgets: tuple[int, ...] = BUDGETS,
    evaluator: str = "smollm2-135m",
    mauve: bool = True,
    **plan: Any,
) -> Path:
    """The whole folder, all cells finished; `plan` changes plan.json."""
    folder.mkdir(parents=True)
    described = {name: {"label": label} | _entry(changes) for name, (label, changes, _) in arms.items()}
    told = {
        "recipe": "made-up", "title": "Made-up numbers", "protocol": None, "command": "arcmask reproduce made-up",
        "arms": described,
        "seeds": list(seeds), "budgets": list(budgets), "samples": SAMPLES, "length": LENGTH,
        "sampling": {"rule": "ancestral", "temperature": 1.0, "top_p": 1.0}, "base": "sotu-tiny", "corpus": "sotu",
        "tokenizer": "text8", "evaluator": evaluator, "features": evaluator if mauve else None,
        "environment": {"arcmask": "0.1.0", "torch": "2.13.0", "python": "3.11", "machine": "2 cores"},
        "baseline": next(iter(arms)), "read_at": None,
    } | plan  # fmt: skip
    (folder / "plan.json").write_text(json.dumps(told, indent=1))
    for name, (_, changes, gain) in arms.items():
        for seed in seeds:
            home = folder / name / f"seed-{seed}"
            if "tune" in changes:
                home.mkdir(parents=True)
            else:
                make_training(home / "train", changes, gain, seed, changes.get("steps", STEPS))
            bounds = {"plain": bound(1.70 + 0.001 * seed)}
            if (changes.get("tune") or changes).get("operator", "none") != "none":
                bounds["two_pass"] = bound(1.70 + 0.001 * seed - gain - 0.0002 * seed)
            (home / "likelihood.json").write_text(json.dumps(bounds))
            for budget in budgets:
                cell = home / f"steps-{budget}"
                cell.mkdir()
                lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in samples(seed, budget, name)]
                (cell / "samples.jsonl").write_text("".join(lines))
                found = scores(gain, seed, budget, evaluator=evaluator, mauve=mauve)
                (cell / "scores.json").write_text(json.dumps(found))
                timing = {"calls": SAMPLES * (budget + 1), "seconds": 0.01 * SAMPLES * (budget + 1) * (1 + gain)}
                (cell / "timing.json").write_text(json.dumps(timing))
    return folder


def make_paper(folder: Path, recipe: str = "paper", steps: int = STEPS, png: bytes = PNG) -> Path:
    """A finished folder of a recipe of the paper. The scores are those of the paper's own runs, where it has them."""
    plan = find_experiment(recipe)
    gains = {"none": 0.0, "linear": 0.03, "spherical": 0.056}
    arms: dict[str, tuple[str, dict[str, Any], float]] = {}
    for name, arm in plan.arms.items():
        train = replace(arm.train, steps=steps).to_dict()
        del train["seed"]
        arms[name] = (arm.label, train, gains[train["operator"]])
    settings = plan.to_json() | {"corpus": "openwebtext", "tokenizer": "gpt2"}
    settings |= {"read_at": settings["read_at"] and steps, "samples": SAMPLES}
    for name in ("arms", "seeds", "budgets", "evaluator", "recipe"):
        settings.pop(name)
    make_experiment(
        folder, arms=arms, seeds=plan.seeds, budgets=plan.budgets, evaluator="gpt2-large", recipe=recipe, **settings
    )
    for (name, seed, budget), values in paper_runs().items():
        cell = folder / name / f"seed-{seed}" / f"steps-{budget}" / "scores.json"
        if cell.exists():
            content = json.loads(cell.read_text())
            for score, value in zip(("generative_perplexity", "entropy", "mauve"), values, strict=True):
                interval = None if score == "mauve" else [0.99 * value, 1.01 * value]
                content["scores"][score] |= {"value": value, "interval": interval}
            seeds = {"std_over_seeds": 0.0004, "half_width_over_seeds": 0.0005, "kmeans_seeds": [25, 26, 27, 28, 29]}
            content["scores"]["mauve_over_seeds"] = content["scores"]["mauve"] | seeds
            content["scores"]["mauve"] |= {"std_over_seeds": None, "kmeans_seeds": [25]}
            cell.write_text(json.dumps(content))
    make_inspection(folder, png)
    return folder


def paper_runs() -> dict[tuple[str, int, int], tuple[float, float, float]]:
    """Perplexity, entropy and MAUVE of the paper's runs by arm, seed and steps; three seeds at T = 512, not one."""
    names = {"mdlm": "none", "linear": "linear-learned", "spherical": "spherical-learned"}
    runs = {(names[arm], seed, steps): values for (arm, seed, steps), values in paper.ROWS.items()}
    for arm, (perplexity, mauve) in paper.SINGLE.items():
        for seed in SEEDS:
            near = 1 + 0.005 * (seed - 2)
            runs[names[arm], seed, 512] = (perplexity * near, 5.5, mauve * near)
    return runs


def make_inspection(folder: Path, png: bytes = PNG) -> None:
    """The diagnostics of the base that the paper has figures or numbers of, with a picture for each."""
    home = folder / "base" / "inspect"
    home.mkdir(parents=True)
    cost = {"flops": 29494.0, "trigonometric": 30.0, "microseconds": 10.5}
    costs = {"width": 768, "candidates": 3, "karcher_steps": 3, "operators": {"spherical": cost, "linear": cost}}
    for name in ("norms", "angles", "paths", "sphere", "confidence", "karcher", "accuracy", "cost"):
        data = {"reading": f"The reading of {name}.", **(costs if name == "cost" else {})}
        (home / f"{name}.json").write_text(json.dumps(data))
        (home / f"{name}.png").write_bytes(png)


def _entry(changes: dict[str, Any]) -> dict[str, Any]:
    """An arm's settings in plan.json: those of its training, or of its frozen backbone."""
    return {"train": None, **changes} if "tune" in changes else {"train": train_settings(changes)}


def make_curves(folder: Path, png: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of the base's gain and generation curves, which are also written, with this picture."""
    weights = [0.0, 0.1, 0.3]
    differences = {"linear": [0.0, -0.0103, 0.0188], "spherical": [0.0, -0.0105, 0.0101]}
    half_widths = {"linear": [0.0, 0.0011, 0.0031], "spherical": [0.0, 0.0012, 0.0030]}
    gain = {"rows": 64, "plain": 1.43, "weights": weights, "difference": differences, "half_width": half_widths}
    points = {
        "linear": [generation_point(0.15, 1.2, 1.9), generation_point(0.3, 5.04, 2.1)],
        "spherical": [generation_point(0.15, 0.9, 1.8), generation_point(0.3, 4.1, 2.2)],
    }
    plain = [generation_point(1.0, None, None), generation_point(0.85, None, None)]
    generation = {"quality": "real words (%)", "unit": "points", "better": "higher", "samples": 96, "length": LENGTH}
    generation |= {"steps": 64, "operators": points, "plain": plain}
    home = folder / "base" / "inspect"
    home.mkdir(parents=True, exist_ok=True)
    for name, data in (("gain", gain), ("generation", generation)):
        (home / f"{name}.json").write_text(json.dumps(data | {"reading": f"The reading of {name}."}))
        (home / f"{name}.png").write_bytes(png)
    return gain, generation


def generation_point(setting: float, gain: float | None, half_width: float | None) -> dict[str, Any]:
    """A point of a generation curve."""
    quality = {"setting": setting, "quality": 63.0, "quality_half_width": 2.0, "entropy": 2.7}
    return quality | {"difference": 2.0, "half_width": 2.1, "gain": gain, "gain_half_width": half_width}


def bound(nats: float) -> dict[str, float]:
    """A way's entry of likelihood.json; a symbol of text8 is a byte."""
    numbers = {"nats": nats, "standard_error": 0.004, "perplexity": math.exp(nats), "bits_per_byte": nats / math.log(2)}
    return numbers | {"rows": 256, "tokens": 256 * LENGTH}
