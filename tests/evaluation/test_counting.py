"""Scores by counting, against numbers found by hand."""

import math

import pytest

from arcmask.evaluation.counting import distinct_score, entropy_score, real_word_score, repetition_score
from arcmask.evaluation.texts import ReferenceWords


def test_entropy_is_that_of_frequencies_within_a_sample_averaged():
    score = entropy_score([[1, 1, 2, 3], [7, 7, 7], []], "text8", seed=0)
    assert score["value"] == pytest.approx((1.5 * math.log(2) + 0) / 2)
    assert (score["samples"], score["tokens"], score["tokenizer"]) == (2, 7, "text8")
    uniform = entropy_score([list(range(50))] * 3, "x", seed=0)
    assert uniform["value"] == pytest.approx(math.log(50))
    assert uniform["interval"] == pytest.approx([math.log(50)] * 2)


def test_distinct_is_the_share_of_different_runs_within_a_sample():
    texts = ["a b a b a", "a b c", "one"]
    assert distinct_score(texts, 1, seed=0)["value"] == pytest.approx((2 / 5 + 1 + 1) / 3)
    two = distinct_score(texts, 2, seed=0)
    assert two["value"] == pytest.approx((2 / 4 + 1) / 2)
    assert two["samples"] == 2, "a sample of one word has no pair"
    assert two["pooled"] == pytest.approx(3 / 6)
    assert distinct_score(["", "x"], 3, seed=0)["value"] is None


def test_repetition_is_the_share_of_phrases_said_before():
    assert repetition_score(["a b c d a b c d", "a b c d e"], seed=0)["value"] == pytest.approx((1 / 5 + 0) / 2)
    assert repetition_score(["one two three"], seed=0)["value"] is None


def test_the_real_word_rate_leaves_out_the_first_and_last_word():
    reference = ReferenceWords(frozenset({"the", "cat", "sat", "remarkable"}), "by hand")
    score = real_word_score(["cut the cat xq end", "a Remarkable zzzz b", "two words", ""], reference, seed=0)
    assert score["words"] == 5
    assert score["value"] == pytest.approx(3 / 5)
    assert score["by_length"] == pytest.approx((3 + 3 + 10) / (3 + 3 + 2 + 10 + 4))
    low, high = score["interval"]
    assert low <= 3 / 5 <= high
    assert (score["reference"], score["reference_words"]) == ("by hand", 4)
    assert real_word_score(["two words"], reference, seed=0)["value"] is None
