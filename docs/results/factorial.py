"""Measure which ingredient of a feedback operator does what: mean x path x norm, in eight operators (ingredients.py).

    python docs/results/factorial.py                                   # all parts, about three hours of one core
    python docs/results/factorial.py --only bound --models antiberty   # one part, one model
    python docs/results/page.py                                        # the tables and figures of what was measured

| part | what is measured |
|---|---|
| bound | the two-pass bound of a model as it is, at five fixed weights |
| certainty | the same bound for five operators that hide what LERP says about each position (certainty.py) |
| tuned | the held-out bound of feedback that `arcmask.tune` has fitted to a model as it is |
| generation | samples of a model as it is: two fixed weights, an equal turn, fitted weights; plain at 4 temperatures |
| continued | the bound after a short training with feedback of weight 0.3 |

The models are `sotu-tiny`, `antiberty`, and `sotu-sphere` for the bound alone (one_sphere.py).

All operators of a seed share rows, times, masks, prompts and draws. Each part has a JSON file beside this one. A cell
is added to it as soon as it is measured. If the script is interrupted, run it again; it resumes.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import certainty  # noqa: F401 - registers five operators
import ingredients  # noqa: F401 - registers four operators
import numpy as np
import one_sphere
import torch
from measured import read_cells, write_cells
from scipy.interpolate import PchipInterpolator

import arcmask
from arcmask.data import open_prepared
from arcmask.diagnostics import gain_curve, real_words
from arcmask.diagnostics.gain import Drafts
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Reference, open_evaluator
from arcmask.evaluation.scores import text_losses, token_entropy
from arcmask.feedback import Confidence, SoftMask
from arcmask.rows import counts_of, tokens_of
from arcmask.settings.evaluate import PerplexitySettings

OPERATORS = {  # by mean, path and norm
    ("Euclidean", "chord", "own"): "linear",
    ("Euclidean", "chord", "mask"): "renormalized",
    ("Euclidean", "arc", "own"): "euclidean-arc-own",
    ("Euclidean", "arc", "mask"): "spherical-euclidean",
    ("Fréchet", "chord", "own"): "frechet-chord-own",
    ("Fréchet", "chord", "mask"): "frechet-chord-mask",
    ("Fréchet", "arc", "own"): "frechet-arc-own",
    ("Fréchet", "arc", "mask"): "spherical",
}
CERTAINTY = ["norm-constant", "norm-shuffled", "turn-constant", "turn-shuffled", "norm-only"]
BOUND_WEIGHTS, WEIGHT = (0.1, 0.2, 0.3, 0.5, 0.7), 0.3
TURN = 20.0  # degrees: the mean turn of the mask at which operators are compared
SAMPLE_SETTINGS = (0.3, 0.5, "tuned", "turn")  # weights, feedback that was fitted, and the weight with this turn
TEMPERATURES = (1.0, 0.9, 0.8, 0.7)
ENDS = (25, 11)  # residues that a prompt gives at its two ends: framework regions 1 and 4
SAMPLES_PER_PROMPT = 4
TRAINING = {"steps": 32, "warm_up": 4, "curve": "cosine", "gate_probability": 0.8}
TRAINING |= {"ema": 0.9, "dropout": 0.0, "validate_every": 0, "save_every": 32, "keep": 1}


@dataclass(frozen=True, eq=False)
class Study:
    """A model with its data, and how much of each part is measured."""

    model: str
    data: Path
    prepare: dict[str, Any]
    training: dict[str, Any]  # the part continued
    bound_rows: int  # per seed
    samples: int  # per seed
    steps: int  # denoising steps of a sample
    tuned_rows: tuple[int, int]  # to fit on, and held out

    @cached_property
    def denoiser(self) -> Any:
        if self.model == "sotu-sphere":
            return one_sphere.healed(self.data.parent / self.model, self.corpus("train"))
        return arcmask.load(self.model)

    def corpus(self, split: str) -> Any:
        """Open the corpus; prepare it first if it does not exist."""
        if not self.data.exists():
            arcmask.prepare(out=self.data, **self.prepare)
        return open_prepared(self.data, split)

    def rows(self, split: str, seed: int, count: int) -> Any:
        """Return rows that no other seed has."""
        corpus = self.corpus(split)
        order = np.random.default_rng(0).permutation(len(corpus))
        return corpus.rows(order[seed * count : (seed + 1) * count])


def studies(data: Path) -> dict[str, Study]:
    """Return the models by name; their corpora are in the folder `data`."""
    sotu: dict[str, Any] = {
        "data": data / "sotu-text8-128",
        "prepare": {"corpus": "sotu", "tokenizer": "text8", "length": 128},
        "training": {"batch_size": 16, "micro_batch": 16, "learning_rate": 3e-4},
        "bound_rows": 80,
        "samples": 16,
        "steps": 32,
        "tuned_rows": (24, 64),
    }
    found = [
        Study(model="sotu-tiny", **sotu),
        Study(model="sotu-sphere", **sotu),
        Study(
            model="antiberty",
            data=data / "antibodies",
            prepare={"corpus": "antibodies", "tokenizer": "residues", "pack": "none", "length": 137},
            training={"batch_size": 8, "micro_batch": 8, "learning_rate": 1e-4},
            bound_rows=24,
            samples=8,
            steps=16,
            tuned_rows=(16, 24),
        ),
    ]
    return {study.model: study for study in found}


def measure_bound(study: Study, seed: int, operators: Sequence[str]) -> dict[str, Any]:
    """Return the plain bound (nats per token), and by operator the change, the turn (degrees) and the norm."""
    rows = study.rows("validation", seed, study.bound_rows)
    curve = gain_curve(study.denoiser, rows, operators, BOUND_WEIGHTS, seed, batch_size=40)
    columns = {"change": curve.difference, "turn": curve.angle, "norm": curve.norm}
    return {"plain": curve.plain, **{key: {name: column[name] for name in column} for key, column in columns.items()}}


def measure_samples(study: Study, seed: int, operator: str, setting: float | str) -> dict[str, Any]:
    """Return for each sample the numerator and denominator of its quality, and its diversity.

    The setting is a temperature without feedback; with feedback a weight, `tuned` or `turn`.
    """
    feedback, temperature = None, 1.0
    if operator == "none":
        temperature = float(setting)
    elif setting == "tuned":
        scalars = read_cells("factorial-tuned").get(f"{study.model} {seed} {operator}")
        if scalars is None:
            raise ArcmaskError(f"{operator} is not fitted to {study.model} for the seed {seed}; run --only tuned first")
        feedback = SoftMask(operator, 3, 3, Confidence(scalars["scale"], scalars["centre"], scalars["steepness"]))
    else:
        weight = weight_at_turn(study.model, operator) if setting == "turn" else float(setting)
        feedback = SoftMask(operator, 3, 3, Confidence(fixed=weight))
    if study.model == "antiberty":
        return measure_chains(study, seed, feedback, temperature)
    drawn = arcmask.sample(
        study.denoiser, study.samples, 128, study.steps, feedback, temperature=temperature, seed=seed, batch_size=16
    )
    quality = real_words(_words(study)).measure(drawn.texts)
    entropy = [token_entropy(row) for row in drawn.tolist()]
    return {"quality": [[int(real), int(words)] for real, words in quality], "entropy": entropy}


def weight_at_turn(model: str, operator: str) -> float:
    """Return the fixed weight at which the mean turn of an operator in the bound is TURN, by interpolation."""
    cells = read_cells("factorial-bound")
    turns = [cell["turn"][operator] for name, cell in cells.items() if name.split()[0] == model]
    if not turns:
        raise ArcmaskError(f"the turn of {operator} in {model} is not known; run --only bound first")
    return float(PchipInterpolator([0.0, *np.mean(turns, axis=0)], [0.0, *BOUND_WEIGHTS])(TURN))


def measure_chains(study: Study, seed: int, feedback: SoftMask | None, temperature: float) -> dict[str, Any]:
    """Fill in held-out chains of which both ends are given, several times each."""
    chains = _chains(study, "validation", seed, study.samples // SAMPLES_PER_PROMPT)
    left, right = ENDS
    prompts = [f"{chain[:left]}{'[MASK]' * (len(chain) - left - right)}{chain[-right:]}" for chain in chains]
    drawn = arcmask.sample(
        study.denoiser,
        study.samples,
        steps=study.steps,
        feedback=feedback,
        prompt=[prompt for prompt in prompts for _ in range(SAMPLES_PER_PROMPT)],
        temperature=temperature,
        seed=seed,
        batch_size=study.samples,
    )
    return scores_of_chains(study, drawn.texts)


def scores_of_chains(study: Study, texts: list[str]) -> dict[str, Any]:
    """Return the quality and the diversity of chains that were filled in, several in a row for each prompt.

    `spread` is the share of filled-in residues in which a sample differs from the others of its prompt. `nearest` is
    the number of residues in which it differs from the nearest training chain of its length.
    """
    losses = text_losses(_sapiens(), texts, PerplexitySettings(), cache=None)
    letters = [np.frombuffer(text.encode(), np.uint8) for text in texts]
    groups = [letters[at : at + SAMPLES_PER_PROMPT] for at in range(0, len(letters), SAMPLES_PER_PROMPT)]
    training = _training_chains(study)
    return {
        "quality": [[loss.nats, loss.tokens] for loss in losses or ()],
        "entropy": [token_entropy(list(text)) for text in texts],
        "spread": [_distance_to_others(group, index) for group in groups for index in range(len(group))],
        "nearest": [int((training[len(one)] != one).sum(1).min()) for one in letters],
        "distinct": len(set(texts)),
    }


def _distance_to_others(group: list[Any], index: int) -> float:
    filled = len(group[0]) - sum(ENDS)
    others = [other for number, other in enumerate(group) if number != index]
    return float(np.mean([(other != group[index]).sum() / filled for other in others]))


def measure_tuned(study: Study, seed: int, operator: str) -> dict[str, Any]:
    """Fit the three scalars of the confidence on training rows, and return the change of the bound on held-out rows."""
    count, held_out = study.tuned_rows
    rows, unseen = study.rows("train", seed, count), study.rows("validation", seed, held_out)
    tuned = arcmask.tune(study.denoiser, rows, operator, seed=seed, held_out=unseen)
    confidence = tuned.feedback.confidence
    scalars = {name: getattr(confidence, name).item() for name in ("scale", "centre", "steepness")}
    return {"change": tuned.difference, "plain": tuned.plain, **scalars}


def measure_continued(study: Study, seed: int, operator: str) -> dict[str, Any]:
    """Train with feedback of a fixed weight, and return the bounds on held-out rows, of two passes and of one."""
    rows = study.rows("validation", seed, study.bound_rows)
    feedback = SoftMask(operator, 3, 3, Confidence(fixed=WEIGHT))
    weight = {} if operator == "none" else {"fixed_weight": WEIGHT}
    gate = {} if operator != "none" else {"gate_probability": 0.5}
    with tempfile.TemporaryDirectory() as folder:
        path = arcmask.train(
            study.model, study.data, folder, operator=operator, seed=seed, **(TRAINING | study.training | weight | gate)
        )
        drafts = Drafts(arcmask.load(path), rows, seed=seed, batch_size=40)
        plain = float(drafts.plain.mean())
        return {"plain": plain, "two_pass": plain if operator == "none" else float(drafts.two_pass(feedback)[0].mean())}


@cache
def _words(study: Study) -> Any:
    study.corpus("train")  # which prepares it
    return Reference(str(study.data)).words()


@cache
def _sapiens() -> Any:
    return open_evaluator("sapiens-vh")


def _chains(study: Study, split: str, seed: int, count: int) -> list[str]:
    rows, tokenizer = study.rows(split, seed, count), study.denoiser.tokenizer
    pairs = zip(tokens_of(rows).tolist(), counts_of(rows).tolist(), strict=True)
    return [tokenizer.decode_row(row[:length]) for row, length in pairs]


@cache
def _training_chains(study: Study) -> dict[int, Any]:
    """Return the letters of the training chains (N, L) by their length."""
    by_length: dict[int, list[Any]] = {}
    for chain in _chains(study, "train", 0, len(study.corpus("train"))):
        by_length.setdefault(len(chain), []).append(np.frombuffer(chain.encode(), np.uint8))
    return {length: np.stack(group) for length, group in by_length.items()}


Cell = tuple[str, Callable[[], dict[str, Any]]]


def cells_of(part: str, models: list[Study], seeds: range) -> Iterator[Cell]:
    """Yield the cells of a part, each with its name and how to measure it; a seed is finished before the next."""
    for seed in seeds:
        for study in [study for study in models if part == "bound" or study.model != "sotu-sphere"]:
            name = f"{study.model} {seed}"
            if part in ("bound", "certainty"):
                operators = CERTAINTY if part == "certainty" else list(OPERATORS.values())
                yield name, lambda s=study, n=seed, o=operators: measure_bound(s, n, o)
            if part == "generation":
                arms: list[tuple[str, float | str]] = [("none", temperature) for temperature in TEMPERATURES]
                arms += [(operator, setting) for operator in OPERATORS.values() for setting in SAMPLE_SETTINGS]
                for arm in arms:
                    yield f"{name} {arm[0]} {arm[1]}", lambda s=study, n=seed, a=arm: measure_samples(s, n, *a)
            if part == "tuned":
                for operator in OPERATORS.values():
                    yield f"{name} {operator}", lambda s=study, n=seed, o=operator: measure_tuned(s, n, o)
            if part == "continued":
                for operator in ("none", *OPERATORS.values()):
                    yield f"{name} {operator}", lambda s=study, n=seed, o=operator: measure_continued(s, n, o)


SEEDS = {"bound": 8, "certainty": 8, "tuned": 5, "generation": 5, "continued": 5}


def measure(part: str, models: list[Study], seeds: int) -> None:
    """Measure the cells of a part that are missing in its file."""
    cells = read_cells(f"factorial-{part}")
    for name, compute in cells_of(part, models, range(min(seeds, SEEDS[part]))):
        if name not in cells:
            cells = cells | {name: compute()}
            write_cells(f"factorial-{part}", cells)
            print(part, name, flush=True)


def main() -> None:
    """Measure the parts that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SEEDS, default=list(SEEDS), help="the parts to measure")
    parser.add_argument("--models", nargs="+", choices=studies(Path()), default=list(studies(Path())))
    parser.add_argument("--seeds", type=int, default=8, help="at most, in each part")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of both corpora")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = studies(options.data)
    for part in options.only:
        measure(part, [chosen[name] for name in options.models], options.seeds)


if __name__ == "__main__":
    main()
