"""The inputs of the attacked commands, and the words of those commands with the smallest sizes that do something."""

from pathlib import Path

import yaml

TRAIN = {
    "operator": "spherical",
    "centre": -2.5,
    "steepness": 2.0,
    "gate_probability": 1.0,
    "steps": 4,
    "batch_size": 4,
    "micro_batch": 4,
    "warm_up": 1,
    "save_every": 2,
    "validate_every": 2,
    "validation_rows": 4,
    "precision": "float32",
}
PLAN = {
    "seeds": [1],
    "budgets": [2],
    "likelihood_rows": 4,
    "generation": {"samples": 2, "length": 16},
    "train": TRAIN | {"steps": 2, "save_every": 1, "validate_every": 0, "validation_rows": 0},
    "arms": {
        "base": {},
        "tuned": {"tune": {"operator": "linear", "fixed": True, "rows": 4}},
        "spherical": {"train": {"operator": "spherical"}},
    },
}
PIECES = ("--shard_rows", "300")  # so that `prepare` writes several shards and records


class World:
    """A folder with inputs, and the words of the commands that read and write them.

    texts/ and data/ (prepared), model/ (a checkpoint), run/ (trained with feedback), fed/ (its checkpoint as a folder
    of its own), fed.ckpt, samples.jsonl, scores.json, experiment/, killed.partial/ (of a
    killed `prepare`), train.yaml, plan.yaml.
    """

    def __init__(self, folder: Path, corpus: str, base: Path) -> None:
        self.folder = folder
        self.data, self.texts, self.model = corpus, str(Path(corpus).parent), str(base)
        self.run, self.fed, self.experiment = str(folder / "run"), str(folder / "fed"), str(folder / "experiment")
        self.ckpt, self.samples, self.scores = (
            str(folder / name) for name in ("fed.ckpt", "samples.jsonl", "scores.json")
        )
        self.partial, self.settings, self.plan = (
            str(folder / name) for name in ("killed.partial", "train.yaml", "plan.yaml")
        )
        Path(self.settings).write_text(yaml.safe_dump(TRAIN | {"data": self.data, "init": self.model}))
        Path(self.plan).write_text(yaml.safe_dump(PLAN | {"data": self.data, "base": self.model}))

    def prepare(self, out: str, *options: str) -> list[str]:
        sizes = ["--tokenizer", "text8", "--length", "16", "--holdout", "every:5"]
        return ["prepare", self.texts, out, *sizes, *options]

    def train(self, run: str, *options: str) -> list[str]:
        return ["train", "sotu-tiny-spherical", "--config", self.settings, "--run", run, *options]

    def sample(self, checkpoint: str, out: str) -> list[str]:
        sizes = ["--num", "5", "--batch_size", "2", "--steps", "2", "--length", "8", "--precision", "float32"]
        return ["sample", checkpoint, *sizes, "--out", out]

    def evaluate(self, samples: str, out: str) -> list[str]:
        return ["evaluate", samples, "--evaluator", "none", "--reference", self.data, "--out", out]

    def inspect(self, checkpoint: str, out: str) -> list[str]:
        return [
            "inspect",
            checkpoint,
            "--only",
            "norms",
            "angles",
            "gain",
            "--gain_tokens",
            "32",
            "--tokens",
            "64",
            "--out",
            out,
        ]

    def explore(self, checkpoint: str, out: str) -> list[str]:
        return ["explore", checkpoint, "--steps", "2", "--length", "8", "--feedback", "linear", "--out", out]

    def tune(self, checkpoint: str, data: str, out: str) -> list[str]:
        return ["tune", checkpoint, "--data", data, "--rows", "4", "--held_out_rows", "4", "--fixed", "--out", out]

    def reproduce(self, run: str) -> list[str]:
        return ["reproduce", self.plan, "--run", run]
