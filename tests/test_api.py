"""The commands as functions: names and objects give the same results, and bad input is one sentence."""

import json
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
import torch
from models import small_mdlm
from transformers import BertConfig, BertForMaskedLM

import arcmask
from arcmask.data import TensorRows, open_prepared, open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.experiment import Changes
from arcmask.feedback import OPERATORS, Confidence, SoftMask
from arcmask.objective import TwoPass, likelihood_bound
from arcmask.recipes import find_experiment

TINY = {"batch_size": 4, "micro_batch": 4, "steps": 2, "validate_every": 0, "precision": "float32"}
WORDS = ["the cat sat on a mat and ran off " * 8] * 12


class Bigram:
    """A denoiser of one's own in ten lines: each position looks at its left neighbour."""

    mask_id, max_length, tokenizer = 27, None, open_tokenizer("text8")

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.table, self.output = torch.randn(28, 8, generator=draw), torch.randn(8, 28, generator=draw)

    def hidden(self, embeddings):
        return embeddings + embeddings.roll(1, dims=1)

    def logits(self, hidden_rows):
        return hidden_rows @ self.output


def towards_first(mask, candidates, probs, weight):
    """Move towards the first candidate, as far as it is probable."""
    return mask + (weight * probs[:, 0])[:, None] * (candidates[:, 0] - mask)


@pytest.fixture(autouse=True)
def _no_operators_are_left():
    before = dict(OPERATORS)
    yield
    OPERATORS.clear()
    OPERATORS.update(before)


@pytest.fixture
def rows(corpus):
    return open_prepared(corpus, "train").rows(range(24))


@pytest.fixture
def model(base):
    return arcmask.load(base)


def metrics(run) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("tokens_per_second", "memory_gb")} for line in lines]


# prepare


def test_texts_are_prepared_like_the_files_that_hold_them(tmp_path):
    for number, text in enumerate(WORDS):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{number:02d}.txt").write_text(text)
    settings = {"tokenizer": "text8", "length": 16, "holdout": "every:4"}
    by_name = arcmask.prepare(str(tmp_path / "texts"), tmp_path / "named", **settings)
    in_memory = arcmask.prepare(WORDS, tmp_path / "memory", **settings)
    for left, right in ((by_name, in_memory), (by_name.held_out, in_memory.held_out)):
        assert torch.equal(left.rows(range(len(left))), right.rows(range(len(right))))
    again = arcmask.prepare(WORDS, tmp_path / "memory", **settings)
    assert len(again) == len(in_memory)
    with pytest.raises(ArcmaskError, match="has other settings"):
        arcmask.prepare([*WORDS, "more"], tmp_path / "memory", **settings)


def test_an_open_tokenizer_prepares_like_its_name(tmp_path):
    settings = {"length": 16, "holdout": "none"}
    named = arcmask.prepare(WORDS, tmp_path / "named", tokenizer="text8", **settings)
    opened = arcmask.prepare(WORDS, tmp_path / "open", tokenizer=open_tokenizer("text8"), **settings)
    assert torch.equal(named.rows(range(len(named))), opened.rows(range(len(opened))))
    assert opened.index.tokenizer == "text8"
    assert opened.held_out is None


# sample and tune


def test_a_name_and_an_object_give_the_same_samples_and_the_same_fit(base, model, corpus):
    settings = {"num": 2, "length": 16, "steps": 4, "seed": 3, "feedback": SoftMask("linear")}
    assert torch.equal(arcmask.sample(base, **settings).tokens, arcmask.sample(model, **settings).tokens)
    train, held_out = open_prepared(corpus), open_prepared(corpus, "validation")
    by_rows = arcmask.tune(
        denoiser=model,
        rows=train.rows(train.spread(128)),
        fixed=True,
        held_out=held_out.rows(held_out.spread(512)),
    )
    by_name = arcmask.tune(str(base), corpus, fixed=True)
    assert by_name.difference == by_rows.difference
    assert by_name.feedback.settings() == by_rows.feedback.settings()


# train


def test_objects_train_like_the_names_they_stand_for(base, model, corpus, tmp_path):
    settings = {**TINY, "operator": "linear", "dropout": 0.0}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    named = arcmask.train(base, corpus, tmp_path / "named", **settings)
    objects = arcmask.train(model, open_prepared(corpus), tmp_path / "objects", **settings)
    train = open_prepared(corpus)
    in_memory = arcmask.train(model, train.rows(range(len(train))), tmp_path / "memory", **settings)
    assert metrics(tmp_path / "objects") == metrics(tmp_path / "memory")
    for line, other in zip(metrics(tmp_path / "named"), metrics(tmp_path / "objects"), strict=True):
        assert line == pytest.approx(other, rel=1e-9)  # tensors of a file lie elsewhere in memory and round differently
    first, *others = (arcmask.load(path).state_dict() for path in (named, objects, in_memory))
    assert all(torch.allclose(value, other[name]) for other in others for name, value in first.items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_run_of_objects_resumes_and_refuses_others(model, rows, tmp_path):
    settings = TINY | {"operator": towards_first}
    arcmask.train(model, rows, tmp_path / "run", **settings)
    arcmask.train(model, rows, tmp_path / "run", **settings | {"steps": 4})
    arcmask.train(model, rows, tmp_path / "whole", **settings | {"steps": 4, "warm_up": 0})
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    with pytest.raises(ArcmaskError, match=r"data is '24 rows of 16 tokens, sha256 \w+' there and '23 rows"):
        arcmask.train(model, rows[1:], tmp_path / "run", **settings | {"steps": 4})
    with pytest.raises(ArcmaskError, match="init is 'MDLM with weights"):
        arcmask.train(small_mdlm(28), rows, tmp_path / "run", **settings | {"steps": 4})


def test_held_out_rows_are_validated_on(model, rows, tmp_path):
    settings = TINY | {"validate_every": 2, "operator": None}
    last = arcmask.train(model, rows[:16], tmp_path / "run", held_out=rows[16:], ema=0.0, **settings)
    trained = arcmask.load(last)
    expected = likelihood_bound(TwoPass(trained, None), [rows[16:20], rows[20:]], feedback=False)
    assert metrics(tmp_path / "run")[1]["validation_nll_plain"] == pytest.approx(expected.nats, rel=1e-6)
    assert trained.feedback.operator == "none"


def test_a_new_model_takes_the_vocabulary_of_its_rows(tmp_path):
    rows = torch.randint(0, 9, (8, 8), generator=torch.Generator().manual_seed(0))
    path = arcmask.train("new:tiny", rows, tmp_path / "run", **TINY)
    assert arcmask.load(path).table.shape[0] == arcmask.load(path).mask_id + 1 == int(rows.max()) + 2


def test_a_bert_is_wrapped_tuned_sampled_and_trained(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = BertForMaskedLM(BertConfig(vocab_size=23, max_position_embeddings=16, **sizes))
    rows = torch.randint(5, 22, (12, 12), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ArcmaskError, match=r"BertForMaskedLM is a model of transformers; give arcmask\.wrap"):
        arcmask.sample(bert)
    denoiser = arcmask.wrap(bert, mask_id=22)
    denoiser.feedback = arcmask.tune(denoiser, rows, fixed=True).feedback
    assert arcmask.sample(denoiser, num=2, length=8, steps=4).tokens.shape == (2, 8)
    trained = arcmask.load(arcmask.train(denoiser, rows, tmp_path / "run", **TINY))
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2]
    assert (trained.feedback.operator, trained.mask_id) == ("spherical", 22)


def test_a_denoiser_that_cannot_save_itself_is_sent_to_a_loop_of_ones_own(rows, tmp_path):
    with pytest.raises(
        ArcmaskError, match=r"a Bigram cannot save itself, .* a loop around arcmask\.objective\.TwoPass"
    ):
        arcmask.train(Bigram(), rows, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# inspect, explore


def test_names_and_objects_are_inspected_alike(base, model, corpus, tmp_path):
    settings = {"only": ("gain", "norms", "accuracy"), "operators": ["linear"], "tokens": 64, "gain_tokens": 64}
    named = arcmask.inspect(base, corpus, out=tmp_path / "named", **settings)
    objects = arcmask.inspect(model, open_prepared(corpus), **settings)
    held_out = open_prepared(corpus, "validation")
    memory = arcmask.inspect(model, held_out.rows(range(len(held_out))), out=tmp_path / "memory", **settings)
    assert (named.folder, objects.folder) == (tmp_path / "named", None)
    assert named.records == objects.records
    assert memory.records["gain"] == named.records["gain"]
    assert json.loads((tmp_path / "memory" / "inspect.json").read_text())["checkpoint"] == "MDLM"


def test_a_page_shows_the_call_that_wrote_it(base, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"length": 12, "steps": 4, "feedback": ["none", None]}
    with pytest.raises(ArcmaskError, match="the arm 'none' is given twice"):
        arcmask.explore(model, **settings)
    settings["feedback"] = [None]
    by_name, by_object = (
        arcmask.explore(one, out=f"{type(one).__name__}.html", **settings) for one in (str(base), model)
    )
    arms = [
        json.loads(page.read_text().split('"arms":')[1].split("]}</script>")[0] + "]") for page in (by_name, by_object)
    ]
    assert arms[0] == arms[1]
    assert "arcmask.explore(MDLM, feedback=('none',), out='MDLM.html', length=12, steps=4)" in by_object.read_text()
    with pytest.raises(ArcmaskError, match="has other settings"):
        arcmask.explore(model, out=by_object, **settings | {"seed": 1})


def test_a_denoiser_of_ones_own_goes_everywhere(rows, tmp_path):
    denoiser = Bigram()
    denoiser.feedback = SoftMask("linear", confidence=Confidence(fixed=0.3))
    for feedback in ("trained", None, "spherical", towards_first):
        samples = arcmask.sample(denoiser, num=2, length=12, steps=6, feedback=feedback, prompt="the ")
        assert all(text.startswith("the ") and len(text) == 12 for text in samples.texts)
    tuned = arcmask.tune(denoiser, rows, towards_first, fixed=True)
    assert tuned.feedback.operator == "towards_first"
    inspection = arcmask.inspect(denoiser, rows, operators=[towards_first, "linear"], gain_tokens=128)
    assert set(inspection.records["gain"].difference) == {"towards_first", "linear"}
    assert {"norms", "angles", "accuracy", "confidence"} <= set(inspection.readings)
    page = arcmask.explore(
        denoiser, feedback=("spherical", towards_first, None), prompt="the ", length=12, out=tmp_path / "page.html"
    )
    assert "towards_first" in page.read_text()


def test_a_function_gives_what_the_same_operator_gives_by_name(model, rows):
    def straight(mask, candidates, probs, weight):
        mean = (probs.unsqueeze(2) * candidates).sum(1)
        return mask + weight.unsqueeze(1) * (mean - mask)

    curve = arcmask.diagnostics.gain_curve(model, rows, [straight, "linear"], [0.0, 0.3])
    assert curve.difference["straight"] == pytest.approx(curve.difference["linear"], abs=1e-9)
    by_function, by_name = (arcmask.tune(model, rows, one, fixed=True) for one in (straight, "linear"))
    assert by_function.difference == pytest.approx(by_name.difference, abs=1e-6)


# evaluate


def test_texts_samples_and_files_are_scored_alike(model, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples = arcmask.sample(model, num=4, length=16, steps=8, feedback=None)
    lines = [
        {"text": text, "tokens": tokens} for text, tokens in zip(samples.texts, samples.tokens.tolist(), strict=True)
    ]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {"reference": corpus, "evaluator": "none"}
    result = arcmask.evaluate("samples.jsonl", samples, samples.texts, **settings)
    file, record, texts = (one["scores"] for one in result["sets"].values())
    assert file == record
    assert texts["real_word_rate"] == file["real_word_rate"]
    assert texts["entropy"]["tokenizer"] == "text8"
    assert list(tmp_path.iterdir()) == [tmp_path / "samples.jsonl"]
    written = arcmask.evaluate(samples, out="scores.json", **settings)
    assert json.loads((tmp_path / "scores.json").read_text()) == json.loads(json.dumps(written))
    real = arcmask.evaluate(samples, reference=["the cat", "sat on a mat"], evaluator="none")
    assert real["sets"]["samples-1"]["scores"]["real_word_rate"]["reference"] == "reference"


def test_the_likelihood_takes_a_model_and_rows(base, model, corpus):
    model.feedback = SoftMask(towards_first, confidence=Confidence(fixed=0.3))
    held_out = open_prepared(corpus, "validation")
    rows = held_out.rows(range(len(held_out)))
    folder, memory = (arcmask.evaluate(checkpoint=model, data=data, rows=8)["likelihood"] for data in (corpus, rows))
    for kind in ("plain", "two_pass"):
        assert folder[kind]["nats"] == memory[kind]["nats"]
    assert memory["two_pass"]["feedback"] == "towards_first"
    assert memory["plain"]["bits_per_byte"] == pytest.approx(memory["plain"]["nats"] / 0.693147, rel=1e-5)
    named = arcmask.evaluate(checkpoint=base, data=rows, rows=8)["likelihood"]
    assert named["plain"]["nats"] == folder["plain"]["nats"]


# reproduce


@pytest.mark.slow
def test_a_plan_and_a_recipe_with_changes_are_the_same_experiment(base, corpus, tmp_path):
    changes = {"arms": ["none"], "seeds": [1], "budgets": [2], "samples": 2, "steps": 2, "batch_size": 2}
    changes |= {"base": str(base), "data": corpus, "length": 16, "evaluator": "none", "features": "none"}
    named = arcmask.reproduce("quickstart", tmp_path / "named", operators=[towards_first], **changes)
    arms = json.loads((named / "plan.json").read_text())["arms"]
    assert "towards_first-learned" in arms
    assert (named / "report" / "report.html").is_file()
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    plan = Changes(**changes).apply(find_experiment("quickstart"))
    planned = arcmask.reproduce(plan, tmp_path / "planned")
    scores = [(folder / "none" / "seed-1" / "steps-2" / "scores.json").read_text() for folder in (named, planned)]
    assert json.loads(scores[0])["scores"] == json.loads(scores[1])["scores"]


# bad input


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: arcmask.train("new:tiny", "d", "r", stepz=1), "arcmask.train has no setting 'stepz'; did you mean"),
        (lambda: arcmask.train("new:tiny", "d", "r", steps=0), "steps is 0, but must lie between 1 and 1,000,000,000"),
        (lambda: arcmask.train("new:tiny", "d", "r", steps="many"), "steps is 'many', but must be a whole number"),
        (lambda: arcmask.train("new:tiny", "d", "r", centre="none"), "centre is 'none', but must be a number or auto"),
        (lambda: arcmask.train("new:tiny", "d", "r", band=0.2), "band is 0.2, but must be a list of numbers"),
        (lambda: arcmask.train("new:tiny", "d", "r", curve="cosin"), "curve is 'cosin', but must be constant or"),
        (lambda: arcmask.train("new:tiny", "d", "r", keep=True), "keep is True, but must be a whole number"),
        (lambda: arcmask.train("new:tiny", [[0.5]], "r"), "rows must be ids of shape (N, L), but they are (1, 1)"),
        (lambda: arcmask.train(Bigram(), "d", "r"), "a Bigram cannot save itself"),
        (lambda: arcmask.sample(3), "a int is not a denoiser; it needs mask_id, max_length, table, hidden and logits"),
        (lambda: arcmask.inspect(Bigram(), [[27, 1]]), "rows are clean text, but they have the id of the mask, 27"),
        (lambda: arcmask.inspect(Bigram(), only=["gain"]), "gain of Bigram needs text: pass --data"),
        (lambda: arcmask.explore("sotu-tiny", feedback=["spheric"]), "unknown operator 'spheric'; did you mean"),
        (lambda: arcmask.evaluate(), "there is nothing to evaluate"),
        (lambda: arcmask.evaluate(3), "samples-1 must be a file, a list of texts or Samples, but got int"),
        (lambda: arcmask.prepare([1], "out"), "text 0 has no text but a value of type int"),
        (lambda: arcmask.prepare([], "out", tokenizer="text8"), "the corpus 'texts' is empty"),
        (lambda: arcmask.reproduce("quickstart", base=small_mdlm()), "base is a MDLM, but must be text"),
        (lambda: arcmask.reproduce("quickstar"), "unknown experiment 'quickstar'; did you mean 'quickstart'?"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_nothing_is_written(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArcmaskError) as raised:
        call()
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_the_settings_of_the_command_with_their_defaults():
    parameters = signature(arcmask.train).parameters
    assert list(parameters)[:3] == ["init", "data", "run"]
    assert (parameters["steps"].default, parameters["ema"].default) == (1000, 0.9999)
    assert "verify" not in signature(arcmask.prepare).parameters
    assert signature(arcmask.evaluate).parameters["context"].default == 1024


def test_rows_in_memory_keep_an_order_of_their_own():
    rows = TensorRows(torch.arange(20).reshape(10, 2), mask_id=25)
    assert rows.vocab_size == 26
    assert rows.frequencies.tolist() == [1] * 20 + [0] * 6
    assert rows.rows(rows.spread(3)).tolist() == [[0, 1], [6, 7], [12, 13]]


@pytest.mark.slow
def test_the_page_in_python_runs_from_top_to_bottom(base, corpus, tmp_path, monkeypatch):
    """As written, but for the experiment, which runs with a smaller model and fewer cells."""
    monkeypatch.chdir(tmp_path)
    small = f"base={str(base)!r}, data={corpus!r}, arms=['none'], seeds=[1], budgets=[2], samples=2, steps=2, length=16"
    page = (Path(__file__).parents[1] / "docs" / "python.md").read_text().replace("seeds=[1, 2]", small)
    assert small in page
    *blocks, loop = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["trained"].feedback.operator == "halfway"
    assert (names["folder"] / "report" / "report.html").is_file()
    torch.manual_seed(0)
    before = TwoPass(names["Bigram"](), None)
    exec(loop, names)
    bounds = [likelihood_bound(one, [names["held_out"]], feedback=False).nats for one in (before, names["objective"])]
    assert bounds[1] < bounds[0] - 0.3
    assert len([line for line in loop.splitlines() if line and not line.startswith("from ")]) <= 20


def test_the_library_alone_samples_and_measures_without_the_extras():
    code = """
import sys
for name in ("matplotlib", "jinja2", "datasets", "mauve", "gguf", "tensorboard"):
    sys.modules[name] = None
import arcmask
denoiser = arcmask.load("sotu-tiny")
assert arcmask.sample(denoiser, length=8, steps=2).tokens.shape == (1, 8)
rows = denoiser.table.new_zeros(2, 8).long()
assert arcmask.diagnostics.gain_curve(denoiser, rows, ["linear"], [0.0]).difference == {"linear": [0.0]}
assert callable(arcmask.tune) and callable(arcmask.train) and callable(arcmask.prepare)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
