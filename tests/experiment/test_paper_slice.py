"""The paper's recipe, as small as it gets: one step, two samples, a small model with GPT-2's vocabulary."""

import json

import pytest
from evaluators import TOKENIZER, small_gpt2
from models import small_mdlm

from arcmask.checkpoint import save
from arcmask.cli import main
from arcmask.data import PrepareConfig, prepare

pytestmark = pytest.mark.usefixtures("blank_figures")


@pytest.fixture
def parts(tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(4):
        (text / f"{number}.txt").write_text("We hold these truths to be self-evident. " * 20)
    data = str(tmp_path / "data")
    prepare(PrepareConfig(corpus=str(text), out=data, tokenizer="gpt2", length=16, holdout="every:2"))
    save(small_mdlm(vocab_size=50258), tmp_path / "base")
    small_gpt2().save_pretrained(tmp_path / "evaluator")
    TOKENIZER.save(tmp_path / "evaluator")
    return {"data": data, "base": str(tmp_path / "base"), "evaluator": str(tmp_path / "evaluator")}


def test_the_papers_recipe_runs_end_to_end(parts, tmp_path, capsys):
    run = tmp_path / "run"
    sizes = ["--seeds", "1", "--budgets", "2", "--samples", "2", "--steps", "1", "--batch_size", "2", "--length", "16"]
    places = [word for name, value in parts.items() for word in (f"--{name}", value)]
    main(["reproduce", "paper", "--run", str(run), *sizes, *places, "--features", "none"])
    assert capsys.readouterr().out.strip().endswith(str(run / "report" / "report.html"))
    plan = json.loads((run / "plan.json").read_text())
    assert (plan["protocol"], plan["sampling"]["top_p"], plan["tokenizer"]) == (None, 0.9, "gpt2")
    for arm in ("none", "linear-learned", "spherical-learned"):
        scores = json.loads((run / arm / "seed-1" / "steps-2" / "scores.json").read_text())["scores"]
        assert scores["generative_perplexity"]["value"] > 1
        assert scores["generative_perplexity"]["evaluator"] == parts["evaluator"]
    # With another model it is no longer the paper's protocol, and the report does not set the paper's values beside it.
    assert "72.50" not in (run / "report" / "report.html").read_text()


def test_an_evaluator_that_cannot_be_had_is_missed_before_anything_starts(parts, tmp_path, capsys):
    places = [word for name, value in (parts | {"evaluator": "no/such"}).items() for word in (f"--{name}", value)]
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "paper", "--run", str(tmp_path / "run"), "--features", "none", *places])
    assert stopped.value.code == 2
    assert "no/such" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_mauve_of_too_few_samples_is_refused_before_anything_starts(parts, tmp_path, capsys):
    places = [word for name, value in parts.items() for word in (f"--{name}", value)]
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "paper", "--run", str(tmp_path / "run"), "--samples", "2", "--features", "x", *places])
    assert stopped.value.code == 2
    assert "MAUVE needs" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
