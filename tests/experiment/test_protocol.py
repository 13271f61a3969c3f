"""The paper's protocol: which data keep its values in the report, and that nothing is fetched to find out."""

import ast
import json
import shutil
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from arcmask.cli import main
from arcmask.data import PrepareConfig, open_prepared, prepare
from arcmask.errors import ArcmaskError
from arcmask.experiment import Arm, Changes, Generation, Plan, reproduce
from arcmask.experiment.run import Experiment
from arcmask.recipes import Recipe, find_experiment
from arcmask.recipes.plan_files import plan_to_yaml, read_plan
from arcmask.report.folder import read_run

PAPER = ("paper", "paper-karcher", "paper-topk", "paper-regimes")
RIGHT = {"kind": "openwebtext", "tokenizer": "gpt2", "length": 1024, "row_form": "enclosed"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A JSONL file that stands for a copy of OpenWebText."""
    path = tmp_path_factory.mktemp("copy") / "owt.jsonl"
    path.write_text("".join(json.dumps({"text": f"number {i} " * 300}) + "\n" for i in range(12)))
    return path


@pytest.fixture(scope="module")
def folder(copy, tmp_path_factory):
    """The copy, prepared as the recipe prepares OpenWebText."""
    out = str(tmp_path_factory.mktemp("owt") / "prepared")
    prepare(PrepareConfig(corpus=str(copy), out=out, row_form="enclosed", kind="openwebtext", holdout="last:4"))
    return out


def written_plan(plan, folder):
    """Return plan.json as the experiment writes it once its data are there."""
    Experiment(plan, folder)._write_plan(folder / "plan.json", plan.to_json())
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("name", PAPER)
def test_the_recipes_prepare_the_data_of_the_protocol(name):
    plan = find_experiment(name)
    settings = vars(plan.prepare) | {"kind": plan.prepare.text_kind}
    assert {key: settings[key] for key in RIGHT} == RIGHT
    assert plan.misfits(settings) == []
    assert plan.prepare.holdout_rule == "last:100000"


@pytest.mark.parametrize("name", PAPER)
def test_a_prepared_copy_keeps_the_papers_values_wherever_it_came_from(name, folder, tmp_path, capsys):
    plan = Changes(data=folder).apply(find_experiment(name))
    assert plan.prepare is None
    stored = written_plan(plan, tmp_path)
    assert (stored["protocol"], stored["kind"], stored["corpus"]) == ("paper", "openwebtext", "owt.jsonl")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("change", [{"kind": None}, {"length": 512}, {"row_form": "stream"}, {"tokenizer": "bpe:270"}])
def test_other_data_lose_them_and_a_line_says_why(change, copy, tmp_path, capsys):
    settings = {"corpus": str(copy), "row_form": "enclosed", "kind": "openwebtext", "holdout": "last:4"}
    prepare(PrepareConfig(**settings | {"out": str(tmp_path / "data")} | change))
    capsys.readouterr()
    plan = Changes(data=str(tmp_path / "data")).apply(find_experiment("paper"))
    (tmp_path / "run").mkdir()
    assert written_plan(plan, tmp_path / "run")["protocol"] is None
    ((name, value),) = change.items()
    expected = f"the report leaves out the paper's values: of {plan.data}, {name} is {value}, not {RIGHT[name]}\n"
    assert capsys.readouterr().err == expected


def test_a_corpus_on_disk_takes_the_place_of_the_recipes(copy):
    plan = Changes(corpus=str(copy)).apply(find_experiment("paper"))
    assert (plan.protocol, plan.prepare.corpus, plan.prepare.text_kind) == ("paper", str(copy), "openwebtext")
    assert plan.prepare.out == plan.data == find_experiment("paper").data
    assert plan.misfits(vars(plan.prepare)) == []
    with pytest.raises(ArcmaskError, match=r"corpus is x, but the data are the prepared folder d; give one"):
        Changes(corpus="x", data="d").apply(find_experiment("paper"))


def test_scores_are_those_of_the_paper_and_can_be_set(tmp_path):
    plan = find_experiment("paper")
    source = Path(find_spec("mauve").origin).with_name("compute_mauve.py").read_text()  # to import it takes seconds
    function = next(node for node in ast.parse(source).body if getattr(node, "name", "") == "compute_mauve")
    arguments = function.args.args[-len(function.args.defaults) :]
    defaults = {a.arg: ast.literal_eval(value) for a, value in zip(arguments, function.args.defaults, strict=True)}
    own = defaults["seed"]
    assert (plan.generation.mauve_seed, plan.generation.kmeans_seeds) == (own, (25, 26, 27))
    assert plan.generation.evaluator_precision == "float32"
    changed = Changes(mauve_seed=3, kmeans_seeds=[1, 2], evaluator_precision="bfloat16").apply(plan)
    assert changed.protocol == "paper"
    assert (changed.generation.mauve_seed, changed.generation.kmeans_seeds) == (3, (1, 2))
    reused = replace(plan, generation=replace(plan.generation, reuse=True))
    (tmp_path / "plan.yaml").write_text(plan_to_yaml(reused))
    assert read_plan(tmp_path / "plan.yaml") == reused
    assert reused.sample("none", "c", 1, 64, tmp_path).reuse
    assert reused.to_json()["sampling"]["reuse"] is True
    assert "reuse" not in plan.to_json()["sampling"]


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("command", ["train owt-continue-spherical", *(f"reproduce {name}" for name in PAPER)])
def test_a_dry_run_touches_no_network_and_says_what_would_be_fetched(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "cache"))
    began = time.process_time()
    main([*command.split(), "--dry-run"])
    assert time.process_time() - began < 20
    out = capsys.readouterr().out
    expected = ["Skylion007/openwebtext@refs/convert/parquet (about 24 GB)", "kuleshov-group/mdlm-owt (about 0.68 GB)"]
    expected += ["gpt2-large (about 3.25 GB)"] if command == "reproduce paper" else []
    assert all(part in out for part in expected)
    assert ("gpt2-large" in out) == (command == "reproduce paper")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def finished(corpus, base, tmp_path):
    """A plan whose data are prepared from a dataset on the hub, which cannot be reached."""
    data = str(tmp_path / "data")
    shutil.copytree(corpus, data)
    index = open_prepared(data).index
    settings = index.settings | {"corpus": "hub:owner/text"}
    (tmp_path / "data" / "index.json").write_bytes(replace(index, settings=settings).to_bytes())
    how = PrepareConfig(corpus="hub:owner/text", out=data, tokenizer="text8", length=16, holdout="every:5")
    train = replace(find_experiment("quickstart").arms["none"].train, init=str(base), data=data, steps=1, batch_size=2)
    return Plan(
        recipe="gone",
        title="gone",
        arms={"none": Arm(label="none", train=replace(train, micro_batch=2, operator="none"))},
        baseline="none",
        base=str(base),
        data=data,
        prepare=how,
        seeds=(1,),
        budgets=(),
        generation=Generation(samples=1, length=16, evaluator="no/such", features="no/such"),
        likelihood_rows=2,
    )


@pytest.mark.usefixtures("no_network")
def test_an_experiment_without_generation_needs_its_data_alone(finished, tmp_path, monkeypatch):
    """Neither its corpus on the hub, nor evaluators, nor mauve-text."""
    monkeypatch.setattr("arcmask.experiment.plan_checks.has_mauve", lambda: False)
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "empty"))
    Experiment(finished, tmp_path / "run").open("arcmask")
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["recipe"] == "gone"
    with pytest.raises(ArcmaskError, match="gone computes MAUVE, which needs mauve-text"):
        reproduce(replace(finished, budgets=(2,)), tmp_path / "other")


@pytest.mark.slow
@pytest.mark.usefixtures("no_network")
def test_the_same_from_its_first_stage_to_its_last(finished, tmp_path, monkeypatch):
    monkeypatch.setattr("arcmask.experiment.plan_checks.has_mauve", lambda: False)
    run = reproduce(finished, tmp_path / "run")
    assert (run / "none" / "seed-1" / "likelihood.json").is_file()
    assert read_run(run).missing() == []


@pytest.mark.usefixtures("no_network")
def test_training_on_a_finished_folder_needs_no_corpus(finished, tmp_path, monkeypatch, capsys):
    recipe = Recipe(train=finished.arms["none"].train, prepare=finished.prepare)
    monkeypatch.setattr("arcmask.commands.train.find_recipe", lambda _: recipe)
    words = ["train", "sotu-tiny-none", "--data", finished.data, "--init", finished.base, "--steps", "1"]
    words += ["--batch_size", "2", "--micro_batch", "2", "--validation_rows", "2", "--run", str(tmp_path / "run")]
    main([*words, "--dry-run"])
    assert "to fetch" not in capsys.readouterr().out
    main(words)
    assert capsys.readouterr().out.endswith("step-0000001\n")
