"""`arcmask inspect`: what it writes, what it leaves out and says so, and what it refuses."""

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models import small_mdlm
from planted import write_texts
from transformers import BertConfig, BertForMaskedLM

import arcmask
from arcmask.checkpoint import load, save
from arcmask.data import Batches, PrepareConfig, open_prepared, prepare
from arcmask.diagnostics import InspectConfig, inspect, predict, top_accuracy
from arcmask.errors import ArcmaskError
from arcmask.model import MDLM
from arcmask.settings.inspect import NAMES

UNASKED = tuple(name for name in NAMES if name != "generation")
NEEDS_NOTHING = {"norms", "cost"}
TOKENS = 250  # 16 rows of 16


def written(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files_of(names) -> set[str]:
    return {f"{name}.{kind}" for name in names for kind in ("png", "json")} | {"inspect.json", "inspect.md"}


@pytest.fixture(scope="module")
def seen(home, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "a" / "b"
    return inspect(InspectConfig(checkpoint=str(home / "runs" / "fed"), out=str(out), tokens=TOKENS, gain_tokens=64))


def test_a_run_finds_its_data_and_its_metrics_by_itself(seen):
    assert (tuple(seen.readings), seen.left_out) == (UNASKED, [])
    assert written(seen.folder) == files_of(UNASKED)


def test_beside_every_figure_are_its_data_and_how_to_read_them(seen):
    page = (seen.folder / "inspect.md").read_text()
    for name, reading in seen.readings.items():
        assert (seen.folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        data = json.loads((seen.folder / f"{name}.json").read_text(), parse_constant=pytest.fail)
        assert data.pop("reading") == reading
        assert data
        assert reading in page
        assert reading.endswith(".")
        assert reading.count(". ") <= 4


def test_the_numbers_are_those_of_the_functions(home, seen):
    about = json.loads((seen.folder / "inspect.json").read_text())
    assert (about["split"], about["rows"], about["data"]) == ("validation", 16, str(home / "data"))
    rows = Batches(open_prepared(home / "data", "validation"), batch_size=16, seed=0).batch(0)
    direct = top_accuracy(predict(load(home / "runs" / "fed"), rows))
    data = json.loads((seen.folder / "accuracy.json").read_text())
    assert (data["top"], data["positions"]) == (direct.top, direct.positions)
    weights = json.loads((seen.folder / "confidence.json").read_text())
    assert weights["start"]["settings"] == pytest.approx({"scale": 0.5, "centre": -2.5, "steepness": 2.0})
    learned = load(home / "runs" / "fed").feedback.confidence
    assert weights["learned"]["settings"]["centre"] == pytest.approx(learned.centre.item())
    training = json.loads((seen.folder / "training.json").read_text())
    assert training["steps"] == [1, 2, 3, 4]
    first = json.loads((home / "runs" / "fed" / "metrics.jsonl").read_text().splitlines()[0])
    assert training["weight"][0] == first["weight"]


def test_the_same_seed_gives_the_same_numbers(home, seen, tmp_path):
    names = ["angles", "confidence", "accuracy"]
    settings = {"checkpoint": str(home / "runs" / "fed"), "tokens": TOKENS}
    inspect(
        InspectConfig(
            out=str(tmp_path / "same"),
            only=tuple(names),
            **settings,
        )
    )
    for name in names:
        assert (tmp_path / "same" / f"{name}.json").read_bytes() == (seen.folder / f"{name}.json").read_bytes(), name
    inspect(InspectConfig(out=str(tmp_path / "other"), only=("accuracy",), seed=1, **settings))
    other = (tmp_path / "other" / "accuracy.json").read_bytes()
    assert other != (seen.folder / "accuracy.json").read_bytes()


def test_without_data_what_needs_none_is_done_and_the_rest_is_said(home, tmp_path):
    found = inspect(InspectConfig(checkpoint=str(home / "model"), out=str(tmp_path / "out")))
    assert set(found.readings) == NEEDS_NOTHING
    assert written(tmp_path / "out") == files_of(NEEDS_NOTHING)
    assert found.left_out == [
        "skipped gain, angles, paths, sphere, confidence, karcher and accuracy, which need text: pass --data FOLDER, "
        "prepared with the model's tokenizer by `arcmask prepare`",
        "skipped training, which needs metrics: pass --run RUN, a training run with feedback",
        "norms are not compared with frequencies: pass --data",
    ]


def test_data_and_run_can_be_given(home, tmp_path):
    config = InspectConfig(
        checkpoint=str(home / "model"),
        data=str(home / "data"),
        run=str(home / "runs" / "fed"),
        out=str(tmp_path),
        only=("training", "confidence"),
        tokens=TOKENS,
    )
    assert set(inspect(config).readings) == {"training", "confidence"}
    assert json.loads((tmp_path / "confidence.json").read_text())["learned"] is None


def test_a_run_whose_data_is_gone_says_which(home, tmp_path):
    shutil.copytree(home / "runs" / "fed", tmp_path / "fed")
    settings = (tmp_path / "fed" / "config.yaml").read_text()
    (tmp_path / "fed" / "config.yaml").write_text(settings.replace(str(home / "data"), "data/gone"))
    found = inspect(InspectConfig(checkpoint=str(tmp_path / "fed"), out=str(tmp_path / "out")))
    assert set(found.readings) == {*NEEDS_NOTHING, "training"}
    assert "need text: the run's own text, data/gone, is missing; pass --data FOLDER" in found.left_out[0]


def test_figures_of_an_earlier_look_are_not_left_behind(home, tmp_path):
    for only in (("accuracy", "angles"), ("angles",)):
        inspect(InspectConfig(checkpoint=str(home / "runs" / "fed"), out=str(tmp_path), only=only, tokens=64))
    assert written(tmp_path) == files_of(["angles"])


def test_a_model_in_bfloat16_is_measured_in_float32(home, tmp_path):
    model = load(home / "model")
    save(model.to(torch.bfloat16), tmp_path / "half")
    settings = {
        "data": str(home / "data"),
        "only": ("norms", "angles", "accuracy"),
        "tokens": TOKENS,
    }
    found = inspect(InspectConfig(checkpoint=str(tmp_path / "half"), out=str(tmp_path / "out"), **settings))
    assert set(found.readings) == {"norms", "angles", "accuracy"}


def test_a_wrapped_model_is_inspected_like_any_other(home, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    bert = BertForMaskedLM(BertConfig(vocab_size=28, max_position_embeddings=16, **sizes)).eval()
    bert.save_pretrained(tmp_path / "bert")
    settings = {
        "mask_id": 27,
        "data": str(home / "data"),
        "only": ("norms", "accuracy"),
        "tokens": TOKENS,
    }
    found = inspect(InspectConfig(checkpoint=str(tmp_path / "bert"), out=str(tmp_path / "out"), **settings))
    rows = Batches(open_prepared(home / "data", "validation"), batch_size=16, seed=0).batch(0)
    assert top_accuracy(predict(arcmask.wrap(bert, 27), rows)).reading == found.readings["accuracy"]


def refused(tmp_path: Path, **settings) -> str:
    """The sentence; and nothing was written."""
    out = settings.pop("out", str(tmp_path / "refused"))
    with pytest.raises(ArcmaskError) as caught:
        inspect(InspectConfig(out=out, **settings))
    assert not Path(out).is_dir()
    return str(caught.value)


def test_what_is_asked_for_and_cannot_be_had_is_an_error(home, tmp_path):
    model = str(home / "model")
    assert refused(
        tmp_path,
        checkpoint=model,
        only=("norms", "angles"),
    ) == (f"angles of {model} needs text: pass --data FOLDER, prepared with the model's tokenizer by `arcmask prepare`")
    assert f"training of {model} needs metrics: pass --run" in refused(tmp_path, checkpoint=model, only=("training",))
    assert refused(tmp_path, checkpoint=model, run=str(tmp_path)).startswith(
        f"{tmp_path / 'config.yaml'} cannot be read"
    )
    shutil.copytree(home / "runs" / "fed", tmp_path / "plain")
    (tmp_path / "plain" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    sentence = refused(tmp_path, checkpoint=model, run=str(tmp_path / "plain"))
    assert sentence == f"the metrics of the run {tmp_path / 'plain'} have no angles: none of its steps used feedback"


def test_a_corpus_of_another_tokenizer_is_refused(home, tmp_path):
    words = {"one": ["the", "cat", "sat", "on", "a", "mat"], "two": ["green", "ideas", "sleep", "furiously"]}
    for name, some in words.items():
        (tmp_path / "texts" / name).mkdir(parents=True)
        corpus = str(write_texts(tmp_path / "texts" / name, some))
        prepare(PrepareConfig(corpus=corpus, out=str(tmp_path / name), tokenizer="bpe:262", length=16))
    sentence = refused(tmp_path, checkpoint=str(home / "model"), data=str(tmp_path / "one"))
    assert sentence == f"the corpus in '{tmp_path / 'one'}' has 262 token ids (bpe:262), but the model knows 28"
    # As many ids, and the same mask; but the ids stand for other tokens.
    model = small_mdlm(vocab_size=262)
    model.tokenizer = open_prepared(tmp_path / "one").tokenizer()
    save(model, tmp_path / "model")
    sentence = refused(tmp_path, checkpoint=str(tmp_path / "model"), data=str(tmp_path / "two"))
    assert "was made with another tokenizer (bpe:262) than the model's (bpe:262)" in sentence


def test_other_bad_input_is_one_sentence(home, tmp_path):
    model = str(home / "model")
    (tmp_path / "file").touch()
    for settings, sentence in (
        (
            {"checkpoint": model, "out": str(tmp_path / "file" / "x")},
            f"cannot write to {tmp_path / 'file' / 'x'}: {tmp_path / 'file'} is not a folder",
        ),
        (
            {"checkpoint": model, "out": str(tmp_path / "file")},
            f"cannot write to {tmp_path / 'file'}: {tmp_path / 'file'} is",
        ),
        ({"checkpoint": model, "data": str(tmp_path)}, f"'{tmp_path}' is not a prepared corpus"),
        ({"checkpoint": str(tmp_path / "none")}, f"there is no folder '{tmp_path / 'none'}'"),
    ):
        assert refused(tmp_path, **settings).startswith(sentence)
    for settings, sentence in (
        (
            {"only": ("norms", "angels")},
            "unknown diagnostic 'angels'; did you mean 'angles'? choose one of: accuracy, angles",
        ),
        ({"tokens": 0}, "tokens is 0, but must lie between 1 and"),
        ({"seed": -1}, "seed is -1, but must lie between 0 and"),
    ):
        with pytest.raises(ArcmaskError) as caught:
            InspectConfig(checkpoint=model, **settings)
        assert str(caught.value).startswith(sentence)


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "arcmask", "inspect", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def test_the_command_prints_the_sentences_and_the_folder(home, forks, tmp_path):
    words = ["inspect", str(home / "model"), "--data", str(home / "data"), "--only", "norms", "accuracy"]
    result = forks.run(words, tmp_path)
    assert result.code == 0, result.stderr
    norms, accuracy, folder = result.stdout.splitlines()
    assert norms.startswith("norms: The norms of 10 tokens ")
    assert accuracy.startswith("accuracy: At t = 0.5 the first candidate is right at ")
    assert folder == "inspect/model"
    assert written(tmp_path / folder) == files_of(["norms", "accuracy"])


@pytest.mark.slow
def test_a_small_model_in_the_released_layout_fits_in_four_gigabytes(tmp_path):
    """It should also end within two minutes on two cores; a time decides no test, and docs/inspect.md has it."""
    save(MDLM.create("small", 50258), tmp_path / "small")
    prepare(PrepareConfig(corpus="sotu", out=str(tmp_path / "data"), documents=40))
    curve = ("--operators", "linear", "--gain_tokens", "2048")
    result = command(str(tmp_path / "small"), "--data", str(tmp_path / "data"), *curve, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert written(tmp_path / "inspect" / "small") == files_of(set(UNASKED) - {"training"})
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(os.linesep, result.stdout, f"peak {children.ru_maxrss / 1e6:.2f} GB, {children.ru_utime:.0f} s of processor")
    assert children.ru_maxrss < 4e6


@pytest.mark.usefixtures("blank_figures")
def test_padded_rows_are_inspected_and_their_padding_is_never_seen_or_counted(chain_model, chain_data, tmp_path):
    settings = {"tokens": 200, "gain_tokens": 200, "only": ("norms", "accuracy", "angles", "gain")}
    seen = inspect(InspectConfig(checkpoint=chain_model, data=chain_data, out=str(tmp_path / "out"), **settings))
    assert (set(seen.readings), seen.left_out) == (set(settings["only"]), [])
    corpus, denoiser = open_prepared(chain_data), arcmask.load(chain_model)
    rows = corpus.rows(range(len(corpus)))
    assert len(set(rows.lengths.tolist())) > 1
    other = replace(rows, tokens=rows.tokens.where(rows.attention_mask, 7))
    for ours, theirs in zip(predict(denoiser, rows), predict(denoiser, other), strict=True):
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.candidates.probs, theirs.candidates.probs)
        assert int(ours.targets.min()) >= 5, "neither padding nor [CLS] and [SEP]"
    curves = [arcmask.diagnostics.gain_curve(denoiser, some, weights=[0.3]) for some in (rows, other)]
    assert curves[0] == curves[1]
