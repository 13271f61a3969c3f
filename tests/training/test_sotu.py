"""A real run on real text, of the size that a laptop can do."""

import json

import matplotlib as mpl
import pytest

from arcmask.checkpoint import load
from arcmask.cli import main

mpl.use("agg")
import matplotlib.pyplot as plt


@pytest.mark.slow
def test_three_hundred_steps_lower_the_validation_perplexity_and_move_the_weight(tmp_path, monkeypatch):
    """The recipe `sotu-tiny-spherical`, from scratch, in smaller batches."""
    monkeypatch.chdir(tmp_path)
    changes = {"init": "new:tiny", "steps": 300, "batch_size": 16, "micro_batch": 16, "learning_rate": 1e-3}
    changes |= {"validate_every": 100, "validation_rows": 64, "run": "run"}
    main(["train", "sotu-tiny-spherical", *(f"--{key}={value}" for key, value in changes.items())])
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    perplexity = [
        record["validation_perplexity_plain"] for record in records if "validation_perplexity_plain" in record
    ]
    assert len(perplexity) == 3
    assert perplexity[0] > perplexity[1] > perplexity[2]
    fed = [record for record in records if record["feedback"]]
    assert abs(fed[-1]["weight"] - fed[0]["weight"]) > 1e-3
    assert abs(fed[-1]["centre"] - fed[0]["centre"]) > 1e-2
    figure, axes = plt.subplots()
    axes.plot([record["step"] for record in fed], [record["weight"] for record in fed])
    figure.savefig(tmp_path / "weight.png")
    assert load(tmp_path / "run").feedback.operator == "spherical"
