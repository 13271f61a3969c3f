"""A start without a recipe: data, a model and a number of steps are enough, and the rest is computed from them."""

import json
from pathlib import Path

import pytest
import yaml
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

from arcmask.checkpoint import load
from arcmask.cli import find_recipe_name, main
from arcmask.data import PrepareConfig, prepare
from arcmask.recipes import EXPERIMENTS, RECIPES, list_recipes
from arcmask.settings.train import TrainCommand, TrainConfig

SMALL = ["--batch_size", "2", "--validation_rows", "2"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bert(here, corpus) -> tuple[str, str]:
    """A small BERT in a folder, and the words of the corpus in its tokens."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"]
    (here / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=14, max_position_embeddings=16, **sizes)).save_pretrained("bert")
    BertTokenizerFast(str(here / "vocab.txt")).save_pretrained("bert")
    text = str(Path(corpus).parent)
    prepare(PrepareConfig(corpus=text, out="data/words", tokenizer="bert", length=16, holdout="every:5"))
    return "bert", "data/words"


def settings(run: Path) -> dict:
    return yaml.safe_load((run / "config.yaml").read_text())


@pytest.mark.parametrize("kind", ["new", "checkpoint", "bert"])
def test_data_a_model_and_steps_are_enough(kind, here, corpus, base, bert, capsys):
    model, data = {"new": ("new:tiny", corpus), "checkpoint": (str(base), corpus), "bert": bert}[kind]
    main(["train", "--data", data, "--init", model, "--steps", "40", *SMALL])
    run = here / "runs" / f"{Path(data).name}-spherical"
    assert capsys.readouterr().out == f"{run.relative_to(here)}/checkpoints/step-0000040\n"
    stored = settings(run)
    assert (stored["warm_up"], stored["save_every"], stored["validate_every"]) == (2, 4, 4)
    assert stored["learning_rate"] == (1e-3 if kind == "new" else 1e-4)
    assert stored["centre"] < 0 < stored["steepness"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 41))
    assert [line["step"] for line in lines if "validation_nll_feedback" in line] == list(range(4, 41, 4))
    trained = load(run)
    assert trained.feedback.operator == "spherical"
    assert trained.tokenizer.encode("the cat") != []


def test_settings_of_training_reach_a_bert(here, bert, monkeypatch):
    compiled = []
    monkeypatch.setattr("torch.nn.Module.compile", lambda module: compiled.append(module))
    model, data = bert
    options = ["--dropout", "0", "--checkpoint_blocks", "true", "--compile_blocks", "true", "--steps", "2"]
    start = ["train", "--data", data, "--init", model, *SMALL, "--micro_batch", "2", "--run", "run"]
    main([*start, *options])
    stored = json.loads((here / "run/checkpoints/step-0000002/config.json").read_text())
    assert (stored["hidden_dropout_prob"], stored["attention_probs_dropout_prob"]) == (0, 0)
    assert [type(block).__name__ for block in compiled] == ["BertLayer"]
    main([*start[:-2], "--run", "run", "--micro_batch", "1", "--dropout", "0", "--steps", "3"])  # it has no dropout
    assert (here / "run/checkpoints/step-0000003").is_dir()


def test_without_held_out_rows_there_is_no_validation(here):
    (here / "text.txt").write_text("the people of the united states " * 50)
    prepare(PrepareConfig(corpus="text.txt", out="data/text", tokenizer="text8", length=16, holdout="none"))
    main(["train", "--data", "data/text", "--init", "new:tiny", "--operator", "none", "--steps", "2", *SMALL])
    assert settings(here / "runs" / "text-none")["validate_every"] == 0


@pytest.mark.parametrize(
    ("steps", "warm_up", "every"), [(1, 0, 1), (19, 0, 1), (2000, 100, 200), (7000, 350, 700), (10**6, 50_000, 1000)]
)
def test_what_is_auto_follows_from_the_steps(steps, warm_up, every):
    config = TrainConfig(data="x", init="y", steps=steps).computed(has_held_out=True)
    assert (config.warm_up, config.save_every, config.validate_every) == (warm_up, every, every)
    given = TrainConfig(data="x", init="y", warm_up=7, save_every=8, learning_rate=0.5).computed(has_held_out=False)
    assert (given.warm_up, given.save_every, given.validate_every, given.learning_rate) == (7, 8, 0, 0.5)


def test_the_folder_of_a_run_is_named_by_recipe_or_by_data_and_operator():
    config = TrainConfig(data="some/data/mine/", init="y", operator="my/own.py:halfway")
    assert TrainCommand(train=config).folder == "runs/mine-halfway"
    assert TrainCommand(train=config, recipe="sotu-tiny-linear").folder == "runs/sotu-tiny-linear"
    assert TrainCommand(train=config, run="there").folder == "there"


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        ("train sotu-tiny-linear --steps 3", "sotu-tiny-linear"),
        ("train --steps 3 sotu-tiny-linear", "sotu-tiny-linear"),
        ("train --dry-run sotu-tiny-linear", "sotu-tiny-linear"),
        ("train --steps=3 sotu-tiny-linear", "sotu-tiny-linear"),
        ("train --data x --init sotu-tiny-linear", None),
        ("train --data x --init y --run sotu-tiny-linear", None),
        ("train no-such", "no-such"),
        ("train", None),
        ("sample sotu-tiny-linear", None),
    ],
)
def test_a_recipe_is_found_wherever_it_stands(line, recipe):
    assert find_recipe_name(line.split()) == recipe


def test_the_recipe_of_a_file_sets_what_the_file_leaves_out(here, capsys):
    (here / "mine.yaml").write_text("recipe: sotu-tiny-linear\ndata: x\n")
    with pytest.raises(SystemExit):
        main(["train", "--config", "mine.yaml", "--print-config"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["operator"], printed["centre"], printed["data"]) == ("linear", -1.5, "x")


def test_the_help_of_train_lists_every_recipe_with_one_line(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    listed = {line[0]: line[1:] for line in lines if line[0] in RECIPES}
    assert listed.keys() == RECIPES.keys()
    assert all(len(words) > 3 for words in listed.values())
    assert len(list_recipes(EXPERIMENTS).splitlines()) == len(EXPERIMENTS)


def test_missing_data_is_one_sentence(capsys):
    for words, sentence in (
        (["--steps", "3"], "the following arguments are required: --data, --init"),
        (
            ["--data", "no/data", "--init", "new:tiny"],
            "'no/data' is not a prepared corpus: it does not exist; make it with: arcmask prepare CORPUS no/data",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["train", *words])
        assert stop.value.code == 2
        assert capsys.readouterr().err == f"arcmask: {sentence}\n"
