"""Test the page: it is self-contained, escapes text, lists what is missing, and refuses folders that are not runs."""

import io
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import rich.console
from made_up import FROZEN, NASTY, PNG, SEEDS, STEPS, make_curves, make_experiment, make_training, samples, scores

from arcmask.cli import main
from arcmask.errors import ArcmaskError
from arcmask.report import build_report, terminal_table
from arcmask.report.chapters import experiment_chapter
from arcmask.report.document import Block, Chapter, Section
from arcmask.report.folder import read_run
from arcmask.report.page import render
from arcmask.report.trainings import training_chapter

VOID = {"meta", "link", "img", "br", "input"}


class Reader(HTMLParser):
    """Checks that every element is closed in its turn, and gathers ids, links and text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open, self.ids, self.loads, self.links, self.text = [], [], [], [], []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.loads += [values[key] for key in ("src", "srcset", "data", "poster") if key in values]
        self.loads += [values["href"]] if tag == "link" else []
        self.links += [values["href"]] if tag == "a" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)


def words(page: Path) -> str:
    """The page's text as one line of plain spaces."""
    return re.sub(r"\s+", " ", "".join(Reader(page.read_text()).text))


def test_the_page_asks_nothing_of_the_network(page):
    content = page.read_text()
    read = Reader(content)
    assert all(load.startswith("data:") for load in read.loads)
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", content)


def test_ids_are_unique_and_every_link_of_the_contents_leads_to_one(page):
    read = Reader(page.read_text())
    assert len(set(read.ids)) == len(read.ids)
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    assert {f"#made-up-{name}" for name in ("run", "found", "generation", "training", "samples", "repeat")} <= set(
        read.links
    )


def test_text_of_a_sample_is_shown_and_never_markup(page):
    content = page.read_text()
    assert NASTY not in content
    assert content.count("<script>") == 1
    assert NASTY in "".join(Reader(content).text)


def test_samples_are_found_in_any_order_and_no_further_than_needed(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "shuffled")
    path = folder / "none" / "seed-1" / "steps-16" / "samples.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[::-1]) + "what follows is not looked at\n")
    assert read_run(folder).samples == read_run(experiment_folder).samples


def test_every_table_and_figure_has_a_number_and_a_sentence(page):
    text = words(page)
    for kind, count in (("Table", len(list((page.parent / "tables").glob("*.json")))), ("Figure", 14)):
        assert all(re.search(rf"{kind} {number}\. [A-Z]", text) for number in range(1, count + 1))


def test_the_page_names_commands_settings_and_environment(page, experiment_folder):
    text = words(page)
    assert "arcmask reproduce made-up" in text
    assert f"arcmask report {experiment_folder}" in text
    assert f"arcmask sample {experiment_folder}/none/seed-1/train --num 6 --steps 16 --seed 1 --length 128" in text
    assert "2.13.0" in text
    assert "karcher_steps: 3" in text


@pytest.mark.slow
def test_the_same_folder_gives_the_same_bytes(page, experiment_folder, tmp_path):
    again = build_report([experiment_folder], tmp_path / "again")
    assert again.read_bytes() == page.read_bytes()
    for path in (page.parent / "figures").iterdir():
        assert (again.parent / "figures" / path.name).read_bytes() == path.read_bytes()


def test_what_is_missing_is_said_and_the_rest_is_shown(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "part")
    (folder / "linear" / "seed-2" / "steps-64" / "scores.json").unlink()
    shutil.rmtree(folder / "spherical" / "seed-3")
    make_training(folder / "spherical" / "seed-3" / "train", {"operator": "spherical"}, 0.05, 3, steps=STEPS - 20)
    text = words(build_report([folder]))
    assert "23 of 27 cells are scored" in text
    assert "linear, seed 2: scores at T = 64" in text
    assert f"spherical, seed 3: training after step {STEPS - 20} of {STEPS}; held-out likelihood; samples at T" in text
    assert "the base model was not inspected" in text
    assert "n = 2" in text


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    folder = make_training(tmp_path / "run", {"operator": "none"}, 0.0, 1)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 61, "los')
    assert read_run(folder).done == STEPS


def test_a_training_run_shows_its_figures(tmp_path):
    folder = make_training(tmp_path / "my-run", {"operator": "spherical"}, 0.05, 1, steps=30)
    page = build_report([folder])
    assert page == folder / "report" / "report.html"
    text = words(page)
    assert f"30 of {STEPS} steps" in text
    assert "training after step 30" in text
    names = {path.stem for path in (page.parent / "figures").glob("*.png")}
    assert names == {"training-perplexity", "validation-perplexity", "weight", "angle"}
    assert "After 30 steps the training perplexity is" in text
    assert "The mean learned weight is 0.1" in text
    assert f"arcmask sample {folder} --num 64 --out {folder}/samples.jsonl" in text
    assert (
        f"arcmask evaluate {folder}/samples.jsonl --reference data/sotu --checkpoint {folder} --data data/sotu" in text
    )
    assert "Scores" not in {section.title for section in training_chapter(read_run(folder), "x").sections}


def test_the_numbers_of_a_training_run_are_means_over_its_last_steps(tmp_path):
    folder = make_training(tmp_path / "my-run", {"operator": "spherical"}, 0.05, 1)
    page = build_report([folder])
    (row,) = json.loads((page.parent / "tables" / "last-metrics.json").read_text())["rows"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-10:]
    weights = [line["weight"] for line in lines if "weight" in line]
    assert row["nll"] == pytest.approx(sum(line["nll"] for line in lines) / 10)
    assert row["weight"] == pytest.approx(sum(weights) / len(weights))
    assert row["validation_perplexity_feedback"] == lines[-1]["validation_perplexity_feedback"]
    assert f"{row['perplexity']:.3f}, averaged over the last 10 steps" in words(page)


def test_scores_and_samples_in_the_folder_of_a_training_run_are_shown(tmp_path):
    folder = make_training(tmp_path / "my-run", {"operator": "spherical"}, 0.05, 1)
    bound = {"nats": 1.5, "perplexity": 4.48, "bits_per_byte": 2.16, "standard_error": 0.01, "rows": 64, "seed": 0}
    found = scores(0.05, 1, 16, evaluator="smollm2-135m", mauve=False)
    evaluation = {"sets": {"samples.jsonl": found}, "over_sets": {}, "likelihood": {"checkpoint": "x", "plain": bound}}
    (folder / "scores.json").write_text(json.dumps(evaluation))
    lines = "".join(json.dumps(line) + "\n" for line in samples(1, 16, "spherical"))
    (folder / "samples.jsonl").write_text(lines)
    text = words(build_report([folder]))
    value = found["scores"]["generative_perplexity"]["value"]
    for part in (f"{value:.2f}", "smollm2-135m", "1.5000", "T = 16, seed 1", json.loads(lines.splitlines()[0])["text"]):
        assert part in text
    assert "arcmask sample" not in text
    assert "arcmask evaluate" not in text


def test_two_training_runs_are_drawn_over_each_other(tmp_path):
    first = make_training(tmp_path / "one", {"operator": "none"}, 0.0, 1)
    second = make_training(tmp_path / "two", {"operator": "spherical"}, 0.05, 1)
    page = build_report([first, second], tmp_path / "both")
    drawn = json.loads((page.parent / "figures" / "training-runs-training-perplexity.json").read_text())
    assert set(drawn["arms"]) == {"one", "two"}
    difference = json.loads((page.parent / "figures" / "training-runs-training-difference.json").read_text())
    assert set(difference["arms"]) == {"two"}, "equal data, seed and batch size: their noise is shared"
    assert "operator none spherical" in " ".join(words(page).split())
    other = make_training(tmp_path / "three", {"operator": "none"}, 0.0, 2)
    page = build_report([first, other], tmp_path / "seeds")
    assert not (page.parent / "figures" / "training-runs-training-difference.json").exists()


def test_a_page_is_replaced_with_a_word_and_only_by_a_report_of_the_same_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "three"):
        make_training(tmp_path / name, {"operator": "none"}, 0.0, 1, steps=3)
    main(["report", "one"])
    main(["report", "one", "two"])
    assert capsys.readouterr().err == ""
    main(["report", "one"])
    main(["report", "one", "two"])
    said = capsys.readouterr().err
    assert (
        said == "one/report/report.html is replaced\nreport/report.html exists with the same settings; it is replaced\n"
    )
    before = Path("report/report.html").read_bytes()
    with pytest.raises(SystemExit):
        main(["report", "one", "three"])
    assert "has other settings (runs is 'one two' there and 'one three' here)" in capsys.readouterr().err
    assert Path("report/report.html").read_bytes() == before
    main(["report", "one", "three", "--overwrite"])
    assert capsys.readouterr().err == "report/report.html is overwritten\n"
    Path("mine").mkdir()
    Path("mine/report.html").write_text("mine")
    with pytest.raises(SystemExit):
        main(["report", "one", "--out", "mine"])
    assert "was not written by this command" in capsys.readouterr().err
    assert Path("mine/report.html").read_text() == "mine"


def test_folders_that_are_not_written_are_not_promised(tmp_path):
    chapter = Chapter("x", "x", "", [Section("a", "A", [Block("text", "nothing")])])
    assert "tables/" not in render("x", [chapter], "0")
    assert "figures/" not in render("x", [chapter], "0")
    full = build_report([make_training(tmp_path / "run", {"operator": "none"}, 0.0, 1)])
    for name in ("tables", "figures"):
        assert f"<code>{name}/</code>" in full.read_text()
        assert (full.parent / name).is_dir()


def test_figures_of_the_base_are_taken_from_its_inspection(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "inspected")
    home = folder / "base" / "inspect"
    home.mkdir(parents=True)
    spread = {"mean": 1.0, "low": 0.9, "median": 1.0, "high": 1.1}
    norms = {"ranks": [1, 2, 3], "norms": [1.0, 1.1, 0.9], "mask": 1.3, "bins": [[1, 3, spread]]}
    (home / "norms.json").write_text(json.dumps(norms | {"reading": "Norms are flat."}))
    (home / "karcher.json").write_text(json.dumps({"reading": "Three steps are enough."}))
    for name in ("norms", "karcher"):
        (home / f"{name}.png").write_bytes(PNG)
    chapter = experiment_chapter(read_run(folder), "x")
    by_name = {figure.name: figure for figure in chapter.figures()}
    assert by_name["base-norms"].data["norms"] == [1.0, 1.1, 0.9]
    assert by_name["base-norms"].caption == "Norms are flat."
    assert by_name["base-karcher"].png == PNG
    assert by_name["base-karcher"].wide


def test_feedback_without_training_comes_before_the_geometry(experiment_folder, tmp_path):
    folder = shutil.copytree(experiment_folder, tmp_path / "curves")
    make_curves(folder, PNG)
    for kind, content in (("json", b'{"reading": "Norms are flat."}'), ("png", PNG)):
        (folder / "base" / "inspect" / f"norms.{kind}").write_bytes(content)
    chapter = experiment_chapter(read_run(folder), "x")
    sections = {section.title: section for section in chapter.sections}
    titles = list(sections)
    assert titles.index("Feedback without training") < titles.index("Geometry")
    shown = [figure for block in sections["Feedback without training"].blocks for figure in block.items]
    assert [figure.name for figure in shown] == ["base-gain", "base-generation"]
    assert [figure.caption for figure in shown] == ["The reading of gain.", "The reading of generation."]
    titles = [section.title for section in experiment_chapter(read_run(experiment_folder), "x").sections]
    assert "Feedback without training" not in titles


def test_frozen_arms_are_reported_without_training(tmp_path):
    folder = make_experiment(tmp_path / "frozen", arms=FROZEN, seeds=(1, 2), budgets=(16,))
    page = build_report([folder], tmp_path / "report")
    text = words(page)
    assert "No training run has finished a step yet." not in text
    assert "Training settings:" not in text
    rows = {row["arm"]: row for row in json.loads((page.parent / "tables" / "arms.json").read_text())["rows"]}
    assert rows["spherical-tuned"]["tune"]["operator"] == "spherical"


@pytest.mark.slow
def test_several_runs_have_a_chapter_each_and_arms_are_compared_where_they_may_be(experiment_folder, tmp_path):
    alike = make_experiment(tmp_path / "alike", seeds=(4, 5))
    longer = make_experiment(tmp_path / "longer", length=256)
    training = make_training(tmp_path / "single", {"operator": "none"}, 0.0, 1)
    page = build_report([experiment_folder, alike, longer, training], tmp_path / "all")
    read = Reader(page.read_text())
    assert len(set(read.ids)) == len(read.ids)
    assert {"comparison", "made-up", "alike", "longer", "single"} <= set(read.ids)
    assert "longer is not compared with made-up: length is 256 there and 128 here" in words(page)
    table = json.loads((page.parent / "tables" / "comparison-comparison.json").read_text())
    row = next(r for r in table["rows"] if (r["arm"], r["score"], r["budget"]) == ("none", "entropy", 16))
    assert row["made-up"]["n"] == len(SEEDS)
    assert row["alike"]["n"] == 2
    assert "longer" not in row


def empty_folder(path: Path) -> Path:
    path.mkdir()
    return path


def bad_plan(path: Path) -> Path:
    path.mkdir()
    (path / "plan.json").write_text('{"arms": 3}')
    return path


def nothing_done(path: Path) -> Path:
    for home in make_experiment(path, seeds=(1,)).glob("*/seed-1"):
        shutil.rmtree(home)
    return path


def no_step(path: Path) -> Path:
    (make_training(path, {"operator": "none"}, 0.0, 1) / "metrics.jsonl").write_text("")
    return path


def broken_metrics(path: Path) -> Path:
    (make_training(path, {"operator": "none"}, 0.0, 1) / "metrics.jsonl").write_text('{"step": 1}\nhello\n')
    return path


def broken_scores(path: Path) -> Path:
    (make_experiment(path) / "none" / "seed-1" / "steps-16" / "scores.json").write_text('{"scores": {"mauve": 3}}')
    return path


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path, "there is no folder {}"),
        (empty_folder, "{} is not a run: it has neither plan.json (arcmask reproduce) nor config.yaml (arcmask train)"),
        (
            bad_plan,
            "{}/plan.json does not hold a plan with arms, seeds and budgets "
            "(AttributeError: 'int' object has no attribute 'items')",
        ),
        (nothing_done, "the experiment {} has no finished cell yet, so there is nothing to report"),
        (no_step, "the run {} has no finished step yet, so there is nothing to report"),
        (broken_metrics, "{}/metrics.jsonl, line 2, is not a record with a step"),
        (
            broken_scores,
            "{}/none/seed-1/steps-16/scores.json does not hold scores, each with a value and an interval "
            "(TypeError: 'int' object is not subscriptable)",
        ),
    ],
)
def test_what_is_no_run_is_one_sentence(make, sentence, tmp_path):
    folder = make(tmp_path / "folder")
    with pytest.raises(ArcmaskError) as raised:
        build_report([folder], tmp_path / "out")
    assert str(raised.value) == sentence.format(folder)
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_one_sentence(experiment_folder, forks, tmp_path):
    (tmp_path / "file").write_text("")
    result = forks.run(["report", str(experiment_folder), "--out", str(tmp_path / "file" / "x")], tmp_path)
    assert result.code == 2
    assert result.stderr == f"arcmask: cannot write to {tmp_path}/file/x/report.html: {tmp_path}/file is not a folder\n"
    assert result.stdout == ""


def test_the_command_prints_the_path_and_needs_a_run(forks, tmp_path):
    folder = make_training(tmp_path / "run", {"operator": "none"}, 0.0, 1)
    result = forks.run(["report", str(folder)], tmp_path)
    assert (result.code, result.stdout) == (0, f"{folder}/report/report.html\n"), result.stderr
    result = forks.run(["report"], tmp_path)
    assert result.code == 2
    assert "at least one run" in result.stderr


def test_labels_with_dollar_signs_and_values_with_spaces(tmp_path):
    arms = {"none": ("no $\\foo{$", {"operator": "none"}, 0.0), "linear": ("$\\ [/b]", {"operator": "linear"}, 0.03)}
    folder = make_experiment(tmp_path / "a run; touch $(x)", arms=arms, seeds=(1, 2), budgets=(16,))
    for path in folder.rglob("samples.jsonl"):
        path.write_text(path.read_text().replace('"ancestral"', '"first; touch y"'))
    text = words(build_report([folder], tmp_path / "report"))
    assert "no $\\foo{$" in text
    (command,) = re.findall(r"arcmask sample .* --out again.jsonl", text)
    assert shlex.split(command)[2] == str(folder / "none" / "seed-1" / "train")
    assert "--rule 'first; touch y'" in command
    console = rich.console.Console(file=io.StringIO(), width=80)
    console.print(terminal_table(folder))
    assert "[/b]" in console.file.getvalue()


def test_an_experiment_without_budgets_has_a_report(tmp_path):
    text = words(build_report([make_experiment(tmp_path / "run", budgets=())], tmp_path / "report"))
    assert "3 arms \u00d7 3 seeds, without samples." in text
