"""`arcmask evaluate`: in this process where it can be, as processes where it must."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from models import small_mdlm

from arcmask.checkpoint import save
from arcmask.commands.evaluate import dry_run, run
from arcmask.data import PrepareConfig, open_tokenizer, prepare
from arcmask.errors import ArcmaskError
from arcmask.evaluation import EvaluateConfig, PerplexitySettings, evaluate_set, open_evaluator, summarize
from arcmask.feedback import Confidence, SoftMask

WORDS = ["hold", "these", "truths", "to", "be", "evident", "that", "men", "are", "equal"]


def text_of(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(12))[:40]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(0)
    for number in range(20):
        (folder / f"{number:02d}.txt").write_text(" ".join(text_of(draw) for _ in range(20)))
    out = str(folder / "prepared")
    prepare(PrepareConfig(corpus=str(folder), out=out, tokenizer="text8", length=32, holdout="every:4"))
    return out


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> list[str]:
    """Two sets as `arcmask sample` writes them, and one from elsewhere."""
    folder, tokenizer = tmp_path_factory.mktemp("samples"), open_tokenizer("text8")
    paths = []
    for seed in (1, 2):
        draw, path = random.Random(seed), folder / f"seed-{seed}.jsonl"
        texts = [text_of(draw) for _ in range(24)]
        records = [{"index": i, "text": text, "tokens": tokenizer.encode(text)} for i, text in enumerate(texts)]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        paths.append(str(path))
    (folder / "elsewhere.txt").write_text("a few\nlines of text\nxqz vvw kkj\n")
    return [*paths, str(folder / "elsewhere.txt")]


def evaluate(*samples: str, **settings) -> dict:
    config = EvaluateConfig(samples=samples, **settings)
    run(config)
    return json.loads(Path(config.out).read_text())


@pytest.fixture
def settings(data, evaluator_folder, tmp_path) -> dict:
    return {"reference": data, "evaluator": str(evaluator_folder), "out": str(tmp_path / "scores.json")}


def test_every_set_gets_every_score_with_what_it_depends_on(samples, settings, data, capsys):
    with pytest.warns(UserWarning, match=r"MAUVE needs 20 texts on each side, but .*elsewhere\.txt has 3"):
        found = evaluate(*samples, **settings)
    assert list(found["sets"]) == sorted(samples)
    counted = {"entropy", "distinct_1", "distinct_2", "distinct_3", "repetition", "real_word_rate"}
    for source, record in found["sets"].items():
        expected = counted | {"generative_perplexity"} | ({"mauve"} if record["count"] == 24 else set())
        assert record["scores"].keys() == expected
        assert record["source"] == source
        assert len(record["sha256"]) == 64
        assert all({"value", "interval"} <= score.keys() for score in record["scores"].values())
        assert record["scores"]["entropy"]["tokenizer"] == "text8"
        assert record["scores"]["real_word_rate"]["reference"] == f"{data} (train and validation)"
        assert record["scores"]["generative_perplexity"]["evaluator"] == settings["evaluator"]
    first, second, elsewhere = (found["sets"][source]["scores"] for source in samples)
    assert first["real_word_rate"]["value"] == 1
    # "of", "text" and their like are not in the corpus; only inner words count.
    assert elsewhere["real_word_rate"]["value"] == 0
    assert elsewhere["real_word_rate"]["words"] == 2
    assert first["mauve"]["samples"] == first["mauve"]["references"] == 24
    values = [one["entropy"]["value"] for one in (first, second, elsewhere)]
    summary = summarize(values)
    assert found["over_sets"]["entropy"] == pytest.approx(vars(summary))
    printed = capsys.readouterr().out
    for shown in ("generative_perplexity", "real_word_rate", "over the 3 sets", f"{samples[0]}: 24 samples"):
        assert shown in printed


def test_the_file_holds_what_evaluate_set_gives(samples, settings):
    found = evaluate(samples[0], **settings, features="none")
    records = [json.loads(line) for line in Path(samples[0]).read_text().splitlines()]
    record = evaluate_set(
        [line["text"] for line in records],
        token_lists=[line["tokens"] for line in records],
        tokenizer="text8",
        evaluator=open_evaluator(settings["evaluator"]),
        source=samples[0],
    )
    theirs = found["sets"][samples[0]]
    del theirs["scores"]["real_word_rate"]
    assert json.loads(json.dumps(record)) == theirs


def test_started_again_it_writes_the_same_bytes_without_a_model_run(samples, settings, monkeypatch):
    evaluate(*samples[:2], **settings)
    before = Path(settings["out"]).read_bytes()
    Path(settings["out"]).unlink()
    monkeypatch.setattr("arcmask.evaluation.evaluator.Evaluator.hidden", None)
    evaluate(*samples[:2], **settings)
    assert Path(settings["out"]).read_bytes() == before


def test_a_file_is_replaced_with_the_same_settings_and_refused_with_others(samples, settings, capsys):
    settings |= {"evaluator": "none"}
    out, before = Path(settings["out"]), evaluate(samples[0], **settings)
    assert capsys.readouterr().err == ""
    assert evaluate(samples[0], **settings, batch_tokens=7) == before
    assert capsys.readouterr().err == f"{out} exists with the same settings; it is replaced\n"
    for change in ({"seed": 5}, {"samples": samples[1:2]}):
        with pytest.raises(ArcmaskError, match=rf"scores.json has other settings \({min(change)} is .* --overwrite"):
            run(EvaluateConfig(**{"samples": samples[:1], **settings} | change))
        with pytest.raises(ArcmaskError, match="has other settings"):
            dry_run(EvaluateConfig(**{"samples": samples[:1], **settings} | change))
    assert json.loads(out.read_text()) == before
    changed = evaluate(samples[0], **settings, seed=5, overwrite=True)
    assert changed["settings"]["seed"] == 5
    assert capsys.readouterr().err == f"{out} is overwritten\n"
    for content in ("a diary", "[1, 2]", '{"settings": 3}', '{"sets": {}}'):
        out.write_text(content)
        with pytest.raises(ArcmaskError, match=r"scores\.json exists already and was not written by this command"):
            evaluate(samples[0], **settings)
        assert out.read_text() == content


def test_a_checkpoint_is_opened_and_checked_before_texts_are_scored(samples, settings, data, tmp_path, monkeypatch):
    monkeypatch.setattr("arcmask.evaluation.sets._evaluate_sets", None)
    with pytest.raises(ArcmaskError, match=r"no\.ckpt"):
        evaluate(samples[0], **settings, checkpoint=str(tmp_path / "no.ckpt"), data=data)
    save(small_mdlm(vocab_size=20, model_length=32), tmp_path / "model")
    with pytest.raises(ArcmaskError, match="has 28 token ids"):
        evaluate(samples[0], **settings, checkpoint=str(tmp_path / "model"), data=data)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ArcmaskError, match="intervals need scipy"):
        evaluate(*samples[:2], **settings)


def test_without_mauve_text_the_rest_works_and_the_extra_is_named(samples, settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "mauve", None)
    with pytest.warns(UserWarning, match=r"MAUVE needs mauve-text; pip install 'arcmask\[eval\]' brings it"):
        found = evaluate(samples[0], **settings)
    assert "mauve" not in found["sets"][samples[0]]["scores"]
    assert "generative_perplexity" in found["sets"][samples[0]]["scores"]


def test_counting_needs_no_evaluator(samples, settings):
    found = evaluate(samples[0], **settings | {"evaluator": "none"})
    assert found["sets"][samples[0]]["scores"].keys() >= {"entropy", "real_word_rate"}
    assert "generative_perplexity" not in found["sets"][samples[0]]["scores"]


def test_a_bad_line_stops_everything_or_is_left_out_as_asked(samples, settings, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(Path(samples[0]).read_text() + "nothing\n")
    with pytest.raises(ArcmaskError, match=r"bad\.jsonl, line 25, is not JSON"):
        evaluate(str(bad), **settings, features="none")
    assert not Path(settings["out"]).exists()
    with pytest.warns(UserWarning, match="line 25, is not JSON; it is left out"):
        record = evaluate(str(bad), **settings, features="none", bad_lines="skip")["sets"][str(bad)]
    assert record["count"] == 24
    assert record["skipped"] == [f"{bad}, line 25, is not JSON"]


def test_bad_settings_are_said_before_anything_is_opened(samples, tmp_path):
    for given, complaint in (
        ({}, "nothing to evaluate"),
        ({"samples": samples[:1] * 2}, "given twice"),
        ({"samples": samples, "checkpoint": "c"}, "needs --checkpoint and --data"),
        ({"samples": samples, "kmeans_seeds": ()}, "at least one"),
        ({"samples": samples, "kmeans_seeds": (25, 26, 25)}, "kmeans_seeds are 25, 26, 25, but each must occur once"),
        ({"samples": samples, "mauve_seed": -1}, "mauve_seed is -1, but must lie between 0 and"),
        ({"samples": samples, "precision": "float16"}, "choose one of"),
        ({"samples": samples, "batch_tokens": 0}, "batch_tokens is 0, but must lie between 1 and"),
    ):
        with pytest.raises(ArcmaskError, match=complaint):
            EvaluateConfig(**given)
    with pytest.raises(ArcmaskError, match="stride"):
        EvaluateConfig(samples=samples, perplexity=PerplexitySettings(stride=5000))
    with pytest.raises(ArcmaskError, match="cannot write"):
        evaluate(samples[0], out=str(tmp_path / "no" / "scores.json"))
    with pytest.raises(ArcmaskError, match="not a prepared corpus"):
        evaluate(out=str(tmp_path / "s.json"), checkpoint="c", data=str(tmp_path))


def test_a_checkpoints_likelihood_is_found_by_the_same_command(data, tmp_path, capsys):
    model = small_mdlm(vocab_size=28, model_length=32)
    model.tokenizer, model.feedback = open_tokenizer("text8"), SoftMask(confidence=Confidence(fixed=0.3))
    save(model, tmp_path / "model")
    out = str(tmp_path / "scores.json")
    found = evaluate(checkpoint=str(tmp_path / "model"), data=data, rows=10, out=out)["likelihood"]
    assert (found["plain"]["rows"], found["two_pass"]["rows"]) == (10, 10)
    assert found["checkpoint"] == str(tmp_path / "model")
    printed = capsys.readouterr().out
    assert printed.count("±") == 3
    assert "\n± is a 95 % confidence interval (Student's t over rows)\n" in printed
    for kind in ("plain", "two_pass"):
        half = 2.262157 * found[kind]["standard_error"]  # from a table of Student's t with 9 degrees of freedom
        assert f"{kind}  " in printed
        assert f"{found[kind]['nats']:.4f} ± {half:.4g} " in printed


def process(*arguments: str, launch: tuple[str, ...] = ("-m", "arcmask")) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, "evaluate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
def test_two_processes_of_torchrun_write_what_one_does(samples, settings, cache, tmp_path):
    options = ["--reference", settings["reference"], "--evaluator", settings["evaluator"], "--features", "none"]
    alone = process(*samples, *options, "--out", str(tmp_path / "alone.json"))
    assert alone.returncode == 0, alone.stderr
    (cache / "scores").rename(cache / "other")
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "-m", "--", "arcmask")
    both = process(*samples, *options, "--out", str(tmp_path / "both.json"), launch=launch)
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("over the 3 sets") == 1
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("alone.json", "both.json"))
    for source in samples:
        ours, theirs = one["sets"][source]["scores"], two["sets"][source]["scores"]
        assert ours["generative_perplexity"].pop("value") == pytest.approx(theirs["generative_perplexity"].pop("value"))
        for name in ("interval", "per_word", "bits_per_byte"):
            assert ours["generative_perplexity"].pop(name) == pytest.approx(theirs["generative_perplexity"].pop(name))
        assert ours == theirs


def test_the_command_line_takes_any_number_of_sets_and_says_what_is_missing(samples, forks, tmp_path):
    words = ["evaluate", *samples, "--evaluator", "none", "--dry-run", "--out", str(tmp_path / "s.json")]
    result = forks.run(words, tmp_path)
    assert result.stdout.startswith("would score 51 different texts out of 3 sets with no evaluator"), result.stderr
    assert not (tmp_path / "s.json").exists()
    result = forks.run(["evaluate"], tmp_path)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == "arcmask: there is nothing to evaluate; give SAMPLES, or --checkpoint and --data\n"
