"""MAUVE, with the real mauve-text, on features that equal a run of the model over one text at a time."""

import random

import numpy as np
import pytest
import torch
from evaluators import TOKENIZER

from arcmask.errors import ArcmaskError
from arcmask.evaluation import PerplexitySettings
from arcmask.evaluation.mauve import mauve_score, text_features

SETTINGS = PerplexitySettings(context=16)
WORDS = ["We", "hold", "these", "truths", "to", "be", "self-evident,", "that", "all", "men", "are", "created", "equal"]


def some_texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


def test_features_are_the_last_hidden_state_of_the_last_token_within_the_context(evaluator):
    texts = [*some_texts(20, 0), "<|endoftext|>", "x"]
    found = text_features(evaluator, texts, SETTINGS, cache=None, batch_tokens=60)
    for text, features in zip(texts, found, strict=True):
        ids = torch.tensor([evaluator.encode([text])[0][:16]])
        with torch.no_grad():
            expected = evaluator.model(ids, output_hidden_states=True).hidden_states[-1][0, -1]
        np.testing.assert_allclose(features, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert max(len(TOKENIZER.encode(text)) for text in texts) > 16, "no text was cut"


def test_texts_without_a_token_have_no_features(evaluator):
    assert len(text_features(evaluator, ["", "a", ""], SETTINGS, cache=None)) == 1
    assert len(text_features(evaluator, ["", ""], SETTINGS, cache=None)) == 0


def test_features_are_kept(evaluator, cache):
    calls = []
    first = text_features(evaluator, some_texts(5, 1), SETTINGS, cache=cache)
    hook = evaluator.model.transformer.register_forward_hook(lambda *_: calls.append(1))
    np.testing.assert_array_equal(text_features(evaluator, some_texts(5, 1), SETTINGS, cache=cache), first)
    hook.remove()
    assert not calls


def test_a_set_against_itself_scores_near_one_and_against_another_near_zero(evaluator):
    draw = np.random.default_rng(0)
    here = draw.normal(size=(60, 8)).astype(np.float32)
    there = here + 20
    score = mauve_score(here, here, evaluator, SETTINGS, [25, 26, 27])
    assert score["value"] > 0.95
    assert score["kmeans_seeds"] == [25, 26, 27]
    assert (score["samples"], score["references"], score["buckets"], score["features"]) == (60, 60, 6, "small")
    assert mauve_score(there, here, evaluator, SETTINGS, [25])["value"] < 0.2


def test_the_seed_of_the_clustering_matters_and_is_obeyed(evaluator):
    draw = np.random.default_rng(1)
    sides = [draw.normal(size=(80, 8)).astype(np.float32) for _ in range(2)]
    scores = [mauve_score(*sides, evaluator, SETTINGS, seeds) for seeds in ([1], [2], [3], [1, 2, 3])]
    alone = [score["value"] for score in scores[:3]]
    assert mauve_score(*sides, evaluator, SETTINGS, [1])["value"] == alone[0]
    assert len(set(alone)) > 1
    assert scores[3]["value"] == pytest.approx(np.mean(alone))
    assert scores[3]["std_over_seeds"] == pytest.approx(np.std(alone, ddof=1))
    assert scores[0]["std_over_seeds"] is None


def test_too_few_texts_are_refused(evaluator):
    few = np.zeros((19, 8), dtype=np.float32)
    with pytest.raises(ArcmaskError, match="20 texts on each side"):
        mauve_score(few, few, evaluator, SETTINGS, [25])
