"""Every command on small models of the families that transformers does not open as masked LMs."""

import json
import random
from pathlib import Path

import pytest
from families import causal_lm, causal_tokenizer
from public_layouts import LENGTH, write_dream_tokenizer, write_llada_tokenizer, write_public

import arcmask
from arcmask.cli import main

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"]
ROWS = ["--rows", "4", "--held_out_rows", "4"]


def write_model(family: str, folder: Path) -> None:
    """Write a model of two layers with a tokenizer of letters."""
    if family == "llama":
        causal_lm(family).save_pretrained(folder)
        causal_tokenizer().save_pretrained(folder)
        arcmask.load(folder, bidirectional=True, mask_token="<mask>").save(folder)
    else:
        write_public(family, folder)
        (write_llada_tokenizer if family == "llada" else write_dream_tokenizer)(folder)


@pytest.mark.parametrize("family", ["llada", "Dream", "llama"])
def test_every_command_takes_the_family(family, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_model(family, tmp_path / "model")
    rng = random.Random(0)
    texts = [" ".join(rng.choice(WORDS) for _ in range(60)) for _ in range(20)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    main(["prepare", "texts.jsonl", "data", "--tokenizer", "model", "--length", "16", "--holdout", "every:5"])
    settings = ["--data", "data", "--init", "model", "--steps", "4", "--batch_size", "4", "--micro_batch", "2"]
    settings += ["--validation_rows", "4", "--gate_probability", "1"]
    capsys.readouterr()
    main(["train", *settings, "--run", "run", "--dry-run"])
    parameters = sum(p.numel() for p in arcmask.load("model").parameters())
    assert f"{parameters:,} parameters; 4 steps of 4 x 16 tokens" in capsys.readouterr().out
    main(["train", *settings, "--run", "run"])
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert any(record["feedback"] for record in records)
    trained = arcmask.load("run")
    assert (trained.mask_id, trained.shift) == (arcmask.load("model").mask_id, family != "llada")
    assert trained.max_length == LENGTH
    assert trained.feedback.operator == "spherical"

    main(["evaluate", "--checkpoint", "run", "--data", "data", "--out", "scores.json"])
    likelihood = json.loads(Path("scores.json").read_text())["likelihood"]
    assert likelihood["plain"]["tokens"] == likelihood["two_pass"]["tokens"] > 0
    main(
        [
            "sample",
            "run",
            "--num",
            "2",
            "--length",
            "12",
            "--steps",
            "3",
            "--prompt",
            "the cat",
            "--out",
            "samples.jsonl",
        ]
    )
    samples = [json.loads(line) for line in Path("samples.jsonl").read_text().splitlines()]
    assert [sample["text"][:7] for sample in samples] == ["the cat"] * 2
    main(["tune", "run", "--data", "data", "--out", "tuned", "--fixed", *ROWS])
    assert arcmask.load("tuned").feedback.confidence.fixed is not None
    main(["inspect", "run", "--data", "data", "--only", "gain", "--gain_tokens", "64", "--out", "inspected"])
    assert Path("inspected/gain.json").is_file()
    main(["convert", "run", "converted", "--dtype", "bfloat16"])
    assert arcmask.load("converted").shift == trained.shift

    changes = [
        "--base",
        "model",
        "--data",
        "data",
        "--length",
        "16",
        "--steps",
        "2",
        "--budgets",
        "4",
        "--evaluator",
        "none",
    ]
    capsys.readouterr()
    main(["reproduce", "quickstart", *changes, "--run", "experiment", "--dry-run"])
    assert "from model on data" in capsys.readouterr().out
