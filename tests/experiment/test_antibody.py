"""The recipe `antibody` on a small model of the same shape: prompts out of held-out rows, diversity, bad input."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from arcmask.cli import main
from arcmask.data import PrepareConfig, open_prepared
from arcmask.errors import ArcmaskError
from arcmask.experiment import Changes, Generation, Plan, reproduce
from arcmask.experiment.held_out import held_out_prompts
from arcmask.recipes import EXPERIMENTS, find_experiment
from arcmask.report import build_report, terminal_table

pytestmark = pytest.mark.usefixtures("blank_figures")
ARMS = ("base", "base-temperature-0.8", "linear-tuned", "spherical-0.3")
ENDS, FILLS = (5, 3), 2


@pytest.fixture(scope="module")
def plan(chain_model, chain_data) -> Plan:
    sizes = {"seeds": [1, 2], "budgets": [3], "samples": 4, "steps": 1, "batch_size": 4, "length": 32}
    changes = Changes(arms=ARMS, base=chain_model, data=chain_data, evaluator="none", micro_batch=4, **sizes)
    plan = changes.apply(find_experiment("antibody"))
    arms = {
        name: arm if arm.tune is None else replace(arm, tune=replace(arm.tune, rows=4, fixed=True))
        for name, arm in plan.arms.items()
    }
    generation = replace(plan.generation, ends=ENDS, fills=FILLS)
    return replace(plan, arms=arms, generation=generation, likelihood_rows=4)


@pytest.fixture(scope="module")
def folder(plan, tmp_path_factory) -> Path:
    folder = reproduce(plan, tmp_path_factory.mktemp("antibody") / "run")
    build_report([str(folder)], None)
    return folder


def cell(folder: Path, arm: str, seed: int) -> Path:
    return folder / arm / f"seed-{seed}" / "steps-3"


def texts(folder: Path, arm: str, seed: int) -> list[str]:
    lines = (cell(folder, arm, seed) / "samples.jsonl").read_text().splitlines()
    return [record["text"] for record in sorted(map(json.loads, lines), key=lambda record: record["index"])]


def edits(first: str, second: str) -> int:
    """The edit distance, from its definition."""
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        last, row[0] = row[0], number
        for place, other in enumerate(second, 1):
            last, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, last + (letter != other))
    return row[-1]


def test_the_recipe_is_what_the_page_says():
    plan = find_experiment("antibody")
    temperatures = [f"base-temperature-{temperature}" for temperature in (0.9, 0.8, 0.7)]
    fitted_and_trained = ["linear-tuned", "spherical-tuned", "none", "linear-0.3", "spherical-0.3"]
    assert list(plan.arms) == ["base", *temperatures, *fitted_and_trained]
    assert (plan.budgets, len(plan.seeds), plan.generation.ends) == ((8, 16, 32), 5, (25, 11))
    assert plan.generation.nearest


@pytest.mark.parametrize("seed", [1, 2])
def test_the_ends_of_held_out_chains_are_given_and_every_arm_fills_in_the_same_ones(seed, folder, chains):
    held_out = {(chain[:5], chain[-3:], len(chain)) for chain in chains[-12:]}
    lines = (folder / "prompts" / f"seed-{seed}.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["text"] for line in lines]
    for arm in ARMS:
        samples = texts(folder, arm, seed)
        assert len(samples) == 4
        for prompt, sample in zip(prompts, samples, strict=True):
            assert (sample[:5], sample[-3:], len(sample)) in held_out
            assert prompt == sample[:5] + "[MASK]" * (len(sample) - 8) + sample[-3:]
        assert (prompts[0], prompts[2]) == (prompts[1], prompts[3]) != (prompts[2], prompts[0]), "two samples for each"
    assert texts(folder, "base", seed) != texts(folder, "base-temperature-0.8", seed)


def test_seeds_have_prompts_of_their_own(folder):
    first, second = ((folder / "prompts" / f"seed-{seed}.jsonl").read_text() for seed in (1, 2))
    assert first != second


def test_diversity_stands_beside_the_scores_everywhere(folder, chains):
    for arm in ARMS:
        scores = json.loads((cell(folder, arm, 1) / "scores.json").read_text())["scores"]
        samples = texts(folder, arm, 1)
        nearest = [min(edits(sample, chain) for chain in chains[:-12]) for sample in samples]
        assert scores["nearest"]["value"] == sum(nearest) / len(nearest)
        assert scores["nearest"]["rows"] == 36
        assert scores["distinct_samples"]["value"] == len(set(samples)) / len(samples)
        assert scores["entropy"]["value"] > 0
    console = Console(width=80, record=True)
    console.print(terminal_table(folder))
    printed = console.export_text()
    page = (folder / "report" / "report.html").read_text()
    for heading in ("Entropy", "Distinct", "Nearest"):
        assert heading in printed
        assert heading in page
    assert "Missing from this report" not in page
    assert "the first 5 and the last 3 tokens of a held-out row are given; 2 samples for each row" in page


def test_the_report_repeats_a_cell(folder, tmp_path):
    page = (folder / "report" / "report.html").read_text()
    (line,) = re.findall(r"arcmask sample [^\n<]+", page)
    words = shlex.split(line)[1:]
    words[words.index("--out") + 1] = str(tmp_path / "again.jsonl")
    main(words)
    assert (tmp_path / "again.jsonl").read_bytes() == (cell(folder, "base", 1) / "samples.jsonl").read_bytes()


def test_more_samples_keep_those_that_are_there(folder, plan, chain_data):
    held_out = open_prepared(chain_data, "validation")
    few, many = (held_out_prompts(held_out, replace(plan.generation, samples=n), 1) for n in (4, 31))
    assert many[:4] == few
    assert len({prompt["text"] for prompt in many}) == 12, "every row before one comes again"
    larger, grown = replace(plan.generation, samples=6), folder.parent / "grown"
    shutil.copytree(folder, grown)
    reproduce(replace(plan, generation=larger), grown)
    for arm in ARMS:
        assert texts(grown, arm, 1)[:4] == texts(folder, arm, 1)
        assert len(texts(grown, arm, 1)) == 6


def test_an_experiment_takes_prompts_from_a_file(plan, tmp_path, monkeypatch):
    file = tmp_path / "mine.txt"
    file.write_text("ACD[MASK][MASK]Y\nWW[MASK]\n")
    changed = Changes(arms=["base"], prompts=str(file), seeds=[1]).apply(plan)
    monkeypatch.setattr("arcmask.experiment.run.is_inspected", lambda _: True)  # it takes seconds
    run = reproduce(changed, tmp_path / "run")
    samples = texts(run, "base", 1)
    assert [(text[:2], len(text)) for text in samples] == [("AC", 6), ("WW", 3)] * 2
    assert not (run / "prompts").exists()
    build_report([str(run)], None)
    assert f"--prompts {file}" in (run / "report" / "report.html").read_text()


BAD = [
    ({"ends": (20, 15)}, "ends is [20, 15], but a held-out row of "),
    ({"ends": None, "fills": 1, "prompts": "none.txt"}, "there is no file or folder none.txt"),
]


@pytest.mark.parametrize(("settings", "sentence"), BAD)
def test_prompts_that_cannot_be_are_refused_before_anything_is_written(settings, sentence, plan, tmp_path):
    with pytest.raises(ArcmaskError, match=re.escape(sentence)):
        reproduce(replace(plan, generation=replace(plan.generation, **settings)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


SETTINGS = [
    ({"ends": (5,)}, "ends is [5], but must be two numbers of tokens, such as [25, 11]"),
    ({"ends": (5, -1)}, "ends is [5, -1], but must be two numbers of tokens, such as [25, 11]"),
    ({"ends": (5, 3), "prompts": "a"}, "prompts is a and ends is [5, 3]; give one of them"),
    ({"fills": 2}, "fills is 2, but without ends no held-out rows are filled in; leave it out"),
]


@pytest.mark.parametrize(("settings", "sentence"), SETTINGS)
def test_settings_of_prompts_that_cannot_be_are_refused_in_a_sentence(settings, sentence):
    with pytest.raises(ArcmaskError, match=f"^{re.escape(sentence)}$"):
        Generation(samples=4, length=32, **settings)


def test_rows_of_a_stream_have_no_neighbours(plan, corpus, base, tmp_path):
    generation = replace(plan.generation, ends=None, fills=1, length=16)
    streams = Changes(base=str(base), data=corpus, arms=["base"]).apply(plan)
    with pytest.raises(ArcmaskError, match="whose rows are pieces of a stream of text; prepare it with --pack none"):
        reproduce(replace(streams, generation=generation), tmp_path / "run")
    text = PrepareConfig(corpus=str(Path(corpus).parent), out=str(tmp_path / "data"), tokenizer="text8", length=16)
    with pytest.raises(ArcmaskError, match="nearest needs rows of one document each, but prepare has pack stream"):
        reproduce(replace(streams, generation=generation, data=text.out, prepare=text), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_network")
def test_the_dry_run_and_the_settings_of_the_recipe_need_no_network(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "antibody", "--dry-run"])
    shown = capsys.readouterr().out
    assert "15 training runs" in shown
    assert re.search("to fetch: clonify-antibody.*antiberty==.*sapiens==", shown)
    main(["reproduce", "antibody", "--print-config"])
    (tmp_path / "plan.yaml").write_text(capsys.readouterr().out)
    assert find_experiment("plan.yaml") == EXPERIMENTS["antibody"]()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]
