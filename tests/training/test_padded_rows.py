"""Training, tuning and evaluation on rows of different lengths, with prompts among them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import arcmask
from arcmask.data import PrepareConfig, open_prepared, prepare
from arcmask.data.prepared import Batches
from arcmask.feedback import Gate
from arcmask.objective import TwoPass
from arcmask.rows import PaddedRows
from arcmask.training import train


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("padded")
    lines = [{"text": "the cat sat on a mat"[: 4 + i % 12]} for i in range(30)]
    lines += [{"prompt": "who sat "[: 2 + i % 6], "response": "a cat"} for i in range(30)]
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {"tokenizer": "text8", "length": 16, "holdout": "every:5", "pack": "none"}
    prepare(PrepareConfig(corpus=str(folder / "lines.jsonl"), out=str(folder / "out"), **settings))
    return str(folder / "out")


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_counts_tokens_and_resumes_to_the_same_bits(data, config, base, tmp_path):
    settings = replace(config, data=data, steps=6, dropout=0.0, validate_every=3, save_every=3)
    train(settings, tmp_path / "whole")
    train(replace(settings, steps=3), tmp_path / "parts")
    train(settings, tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    train(replace(settings, micro_batch=8), tmp_path / "other")
    assert losses(tmp_path / "other") == pytest.approx(losses(tmp_path / "whole"), rel=1e-9)
    # The first loss by hand: the sum over the batch, divided by its tokens that are neither padding nor prompt.
    corpus = open_prepared(data)
    rows, draw = Batches(corpus, batch_size=8, seed=1).batch(0), Gate().draw(1, 0, 8, 16)
    model = arcmask.load(base).double().eval()
    if not draw.feedback:
        result = TwoPass(model, None)(rows, draw.time, draw.masked, feedback=False)
        expected = float(result.loss) / int((rows.lengths - rows.prompts).sum())
        assert losses(tmp_path / "whole")[0] == pytest.approx(expected, rel=1e-9)
    record = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[2])
    assert 0 < record["validation_nll_plain"] < 20


def test_the_other_functions_take_the_folder(data, base):
    held_out = open_prepared(data, "validation")
    bound = arcmask.evaluate(checkpoint=base, data=data)["likelihood"]["plain"]
    assert bound["tokens"] == held_out.record.tokens == int(held_out.counts(range(len(held_out))).sum())
    tuned = arcmask.tune(base, data, fixed=True)
    assert tuned.feedback.confidence.fixed is not None


def test_lists_of_different_lengths_are_rows_too(base, tmp_path):
    rows = [[20, 8, 5, 0, 3], [3, 1, 20], [1, 0, 3, 1, 20, 0], [8, 1, 20]] * 4
    bound = arcmask.evaluate(checkpoint=base, data=rows)["likelihood"]["plain"]
    assert bound["tokens"] == sum(map(len, rows))
    arcmask.train(base, rows, tmp_path / "run", steps=2, batch_size=4, micro_batch=2, validate_every=0, operator=None)
    assert len(losses(tmp_path / "run")) == 2


def test_without_padding_a_training_step_has_the_same_bits(base, tmp_path):
    rows = torch.randint(0, 27, (8, 16), generator=torch.Generator().manual_seed(5))
    settings = {"steps": 2, "batch_size": 4, "micro_batch": 2, "validate_every": 0, "gate_probability": 1.0}
    tensors = []
    for name, same in (("plain", rows), ("padded", PaddedRows.of(rows.tolist()))):
        checkpoint = arcmask.train(base, same, tmp_path / name, **settings)
        tensors.append({path.name: load_file(path) for path in Path(checkpoint).glob("*.safetensors")})
        feedback = [
            json.loads(line)["feedback"] for line in (tmp_path / name / "metrics.jsonl").read_text().split("\n")[:2]
        ]
        assert any(feedback)
    assert losses(tmp_path / "plain") == losses(tmp_path / "padded")
    plain, padded = tensors
    assert plain.keys() == padded.keys()
    for name, stored in plain.items():
        assert all(torch.equal(stored[key], padded[name][key]) for key in stored), name
