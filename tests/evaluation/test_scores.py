"""Scores: perplexity and features equal literal computations, and counts equal numbers found by hand."""

import math
import os
import random

import numpy as np
import pytest
import torch
from evaluators import TOKENIZER
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM

from arcmask.errors import ArcmaskError
from arcmask.evaluation import PerplexitySettings, evaluate_set
from arcmask.evaluation import scores as scoring
from arcmask.evaluation.evaluator import CHUNK, Evaluator, make_evaluator
from arcmask.evaluation.texts import ReferenceWords

SETTINGS = PerplexitySettings(context=16, stride=6)
FEATURES = PerplexitySettings(context=16)
WORDS = ["We", "hold", "these", "truths", "to", "be", "self-evident,", "that", "all", "men", "are", "created", "equal"]
SENTENCE = "We hold these truths to be self-evident, that all men are created equal; and so on. "
TEXTS = [
    "",
    "the",
    " a",
    "Hello world, this is a short one.",
    "é and 漢字, which are several tokens a letter",
    "one<|endoftext|>two and three<|endoftext|><|endoftext|>four",
    "<|endoftext|>begins with it, and ends with it<|endoftext|>",
    "<|endoftext|>",
    "[MASK] <|im_start|> are only text here",
    SENTENCE,
    "a longer text <|endoftext|> " + SENTENCE * 3 + "<|endoftext|>x",
]


def literal(evaluator: Evaluator, text: str, ways: PerplexitySettings) -> tuple[float, int]:
    """Nats and counted tokens: each token from a run of the model over exactly what comes before it."""
    ids: list[int] = []
    for place, part in enumerate(text.split("<|endoftext|>")):
        ids += ([TOKENIZER.end_id] if place else []) + TOKENIZER.encode(part)
    put_before = ways.start == "end-of-text" and ids[:1] != [TOKENIZER.end_id]
    everything = [TOKENIZER.end_id, *ids] if put_before else ids
    nats, count, ends = 0.0, 0, 0
    for i, token in enumerate(everything):
        of_text = i >= 1 or not put_before
        ends += of_text and token == TOKENIZER.end_id
        if i == 0 or (token == TOKENIZER.end_id and ends > 1):
            continue
        skipped = max(0, math.ceil((i - ways.context + 1) / ways.stride))
        before = torch.tensor([everything[skipped * ways.stride : i]])
        with torch.no_grad():
            log_probs = evaluator.model(before, logits_to_keep=1).logits[0, -1].double().log_softmax(-1)
        nats -= float(log_probs[token])
        count += 1
    return nats, count


@pytest.mark.parametrize("start", ["end-of-text", "none"])
def test_perplexity_equals_the_literal_computation(evaluator, start):
    ways = PerplexitySettings(context=16, stride=6, start=start)
    expected = [literal(evaluator, text, ways) for text in TEXTS]
    found = scoring.text_losses(evaluator, TEXTS, ways, cache=None, batch_tokens=50)
    for text, loss, (nats, count) in zip(TEXTS, found, expected, strict=True):
        assert loss.tokens == count, text
        assert loss.nats == pytest.approx(nats, rel=1e-4, abs=1e-6), text
    score = scoring.perplexity_score(evaluator, found, ways, seed=0)
    nats, count = (sum(column) for column in zip(*expected, strict=True))
    assert score["value"] == pytest.approx(math.exp(nats / count), rel=1e-4)
    assert score["tokens"] == count


@settings(max_examples=8)
@given(st.permutations(range(len(TEXTS))), st.integers(1, 400))
def test_perplexity_does_not_depend_on_batch_size_or_order(evaluator, order, batch_tokens):
    usual = scoring.text_losses(evaluator, TEXTS, SETTINGS, cache=None)
    other = scoring.text_losses(evaluator, [TEXTS[i] for i in order], SETTINGS, cache=None, batch_tokens=batch_tokens)
    for place, loss in zip(order, other, strict=True):
        assert loss.nats == pytest.approx(usual[place].nats, rel=1e-5, abs=1e-6)
        assert (loss.tokens, loss.words, loss.bytes) == (usual[place].tokens, usual[place].words, usual[place].bytes)


def test_what_is_counted_text_by_text(evaluator):
    texts = ["", "one", "one<|endoftext|>two<|endoftext|>", "<|endoftext|>one two<|endoftext|>", "été"]
    found = scoring.text_losses(evaluator, texts, SETTINGS, cache=None)
    one, two, both, accents = (len(TOKENIZER.encode(text)) for text in ("one", "two", "one two", "été"))
    assert [loss.tokens for loss in found] == [0, one, one + 1 + two, both, accents]
    assert [loss.words for loss in found] == [0, 1, 2, 2, 1]
    assert [loss.bytes for loss in found] == [0, 3, 6, 7, 5]


def test_without_a_start_the_first_token_is_given_and_its_text_not_counted(evaluator):
    text = "hold these truths"
    first = TOKENIZER.decode(TOKENIZER.encode(text)[:1])
    assert text.startswith(first)
    found = scoring.text_losses(evaluator, [text, "h", ""], PerplexitySettings(start="none"), cache=None)
    expected = (len(TOKENIZER.encode(text)) - 1, 3, len(text) - len(first))
    assert [(loss.tokens, loss.words, loss.bytes) for loss in found] == [expected, (0, 0, 0), (0, 0, 0)]


def test_per_word_and_bits_per_byte_follow_from_the_same_nats(evaluator):
    losses = scoring.text_losses(evaluator, TEXTS, SETTINGS, cache=None)
    score = scoring.perplexity_score(evaluator, losses, SETTINGS, seed=0)
    nats = score["tokens"] * math.log(score["value"])
    assert score["words"] * math.log(score["per_word"]) == pytest.approx(nats)
    assert score["bytes"] * score["bits_per_byte"] * math.log(2) == pytest.approx(nats)
    low, high = score["interval"]
    assert low < score["value"] < high
    assert (score["evaluator"], score["context"], score["stride"], score["start"]) == ("small", 16, 6, "<|endoftext|>")


def test_texts_without_a_token_have_no_perplexity(evaluator):
    score = scoring.perplexity_score(
        evaluator, scoring.text_losses(evaluator, ["", ""], SETTINGS, cache=None), SETTINGS, seed=0
    )
    assert (score["value"], score["interval"], score["per_word"], score["bits_per_byte"]) == (None, None, None, None)


def test_a_model_that_bends_its_logits_is_asked_for_them_itself():
    sizes = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(vocab_size=TOKENIZER.size, final_logit_softcapping=0.5, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    bent = make_evaluator("bent", "1" * 64, model, TOKENIZER.inner)
    assert not bent.has_plain_head
    found = scoring.text_losses(bent, TEXTS[:6], SETTINGS, cache=None)
    for text, loss in zip(TEXTS[:6], found, strict=True):
        assert (loss.nats, loss.tokens) == pytest.approx(literal(bent, text, SETTINGS), rel=1e-4)


def test_logits_for_all_positions_never_exist(evaluator, monkeypatch):
    seen = []
    head = evaluator.model.get_output_embeddings()
    hook = head.register_forward_hook(lambda _module, _given, logits: seen.append(logits.shape[0]))
    monkeypatch.setitem(CHUNK, "cpu", 50 * TOKENIZER.size)
    assert evaluator.has_plain_head
    losses = scoring.text_losses(
        evaluator, [SENTENCE[start:] for start in range(20)], SETTINGS, cache=None, batch_tokens=9999
    )
    hook.remove()
    assert sum(seen) == sum(loss.tokens for loss in losses) > 9 * max(seen)
    assert max(seen) <= 50


def test_settings_that_cannot_be_are_refused():
    for wrong in ({"context": 1}, {"context": 10, "stride": 10}, {"stride": 0}, {"start": "bos"}):
        with pytest.raises(ArcmaskError):
            PerplexitySettings(**wrong)
    assert PerplexitySettings(context=1024).fitted(64) == PerplexitySettings(context=64, stride=32)


def test_entropy_is_that_of_frequencies_within_a_sample_averaged():
    score = scoring.entropy_score([[1, 1, 2, 3], [7, 7, 7], []], "text8", seed=0)
    assert score["value"] == pytest.approx((1.5 * math.log(2) + 0) / 2)
    assert (score["samples"], score["tokens"], score["tokenizer"]) == (2, 7, "text8")
    uniform = scoring.entropy_score([list(range(50))] * 3, "x", seed=0)
    assert uniform["value"] == pytest.approx(math.log(50))
    assert uniform["interval"] == pytest.approx([math.log(50)] * 2)


def test_distinct_is_the_share_of_different_runs_within_a_sample():
    texts = ["a b a b a", "a b c", "one"]
    assert scoring.distinct_score(texts, 1, seed=0)["value"] == pytest.approx((2 / 5 + 1 + 1) / 3)
    two = scoring.distinct_score(texts, 2, seed=0)
    assert two["value"] == pytest.approx((2 / 4 + 1) / 2)
    assert two["samples"] == 2, "a sample of one word has no pair"
    assert two["pooled"] == pytest.approx(3 / 6)
    assert scoring.distinct_score(["", "x"], 3, seed=0)["value"] is None


def test_repetition_is_the_share_of_phrases_said_before():
    assert scoring.repetition_score(["a b c d a b c d", "a b c d e"], seed=0)["value"] == pytest.approx((1 / 5 + 0) / 2)
    assert scoring.repetition_score(["one two three"], seed=0)["value"] is None


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(ArcmaskError, match="texts is one text; give a list of texts"):
        evaluate_set("a text")


def test_the_real_word_rate_leaves_out_the_first_and_last_word():
    reference = ReferenceWords(frozenset({"the", "cat", "sat", "remarkable"}), "by hand", 4)
    score = scoring.real_word_score(["cut the cat xq end", "a Remarkable zzzz b", "two words", ""], reference, seed=0)
    assert score["words"] == 5
    assert score["value"] == pytest.approx(3 / 5)
    assert score["by_length"] == pytest.approx((3 + 3 + 10) / (3 + 3 + 2 + 10 + 4))
    low, high = score["interval"]
    assert low <= 3 / 5 <= high
    assert (score["reference"], score["reference_words"]) == ("by hand", 4)
    assert scoring.real_word_score(["two words"], reference, seed=0)["value"] is None


def some_texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


def test_features_are_the_last_hidden_state_of_the_last_token_within_the_context(evaluator):
    texts = [*some_texts(20, 0), "<|endoftext|>", "x"]
    found = scoring.text_features(evaluator, texts, FEATURES, cache=None, batch_tokens=60)
    for text, features in zip(texts, found, strict=True):
        ids = torch.tensor([evaluator.encode([text])[0][:16]])
        with torch.no_grad():
            expected = evaluator.model(ids, output_hidden_states=True).hidden_states[-1][0, -1]
        np.testing.assert_allclose(features, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert max(len(TOKENIZER.encode(text)) for text in texts) > 16, "no text was cut"


def test_texts_without_a_token_have_no_features(evaluator):
    assert len(scoring.text_features(evaluator, ["", "a", ""], FEATURES, cache=None)) == 1
    assert len(scoring.text_features(evaluator, ["", ""], FEATURES, cache=None)) == 0


def test_features_are_kept(evaluator, cache):
    calls = []
    first = scoring.text_features(evaluator, some_texts(5, 1), FEATURES, cache=cache)
    hook = evaluator.model.transformer.register_forward_hook(lambda *_: calls.append(1))
    np.testing.assert_array_equal(scoring.text_features(evaluator, some_texts(5, 1), FEATURES, cache=cache), first)
    hook.remove()
    assert not calls


@pytest.mark.parametrize("start", ["none", "end-of-text"])
def test_one_pass_gives_the_losses_and_the_features_of_the_same_model(start, evaluator, cache, monkeypatch):
    """With end-of-text before a text its states differ, so that texts without their own need a pass of features."""
    settings = PerplexitySettings(context=16, stride=6, start=start)
    texts = [text for text in TEXTS if len(text) > 4 and text != "<|endoftext|>"]  # one token has no loss
    losses = scoring.text_losses(evaluator, texts, settings, cache=None)
    features = scoring.text_features(evaluator, texts, settings, cache=None)
    rows: list[int] = []
    hidden = Evaluator.hidden
    monkeypatch.setattr(Evaluator, "hidden", lambda self, ids: (rows.append(len(ids)), hidden(self, ids))[1])
    assert scoring.text_losses(evaluator, texts, settings, cache=cache, keep_features=True) == losses
    passes = sum(rows)
    np.testing.assert_allclose(
        scoring.text_features(evaluator, texts, settings, cache=cache), features, rtol=0, atol=1e-5
    )
    without = [text for text in texts if not text.startswith("<|endoftext|>")]
    assert sum(rows) - passes == (0 if start == "none" else len(without))


def mauve(samples, references, evaluator, kmeans_seeds, seed=None):
    return scoring.mauve_scores(samples, references, evaluator, FEATURES, seed, kmeans_seeds)


def test_a_set_against_itself_scores_near_one_and_against_another_near_zero(evaluator, capfd):
    draw = np.random.default_rng(0)
    here = draw.normal(size=(60, 8)).astype(np.float32)
    there = here + 20
    score = mauve(here, here, evaluator, [25, 26, 27])["mauve"]
    assert score["value"] > 0.95
    assert score["kmeans_seeds"] == [25, 26, 27]
    assert (score["samples"], score["references"], score["buckets"], score["features"]) == (60, 60, 6, "small")
    assert mauve(there, here, evaluator, [25])["mauve"]["value"] < 0.2
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again", "faiss warns about few points"


def test_the_seed_of_the_clustering_matters_and_is_obeyed(evaluator):
    draw = np.random.default_rng(1)
    sides = [draw.normal(size=(80, 8)).astype(np.float32) for _ in range(2)]
    scores = [mauve(*sides, evaluator, seeds)["mauve"] for seeds in ([1], [2], [3], [1, 2, 3])]
    alone = [score["value"] for score in scores[:3]]
    assert mauve(*sides, evaluator, [1])["mauve"]["value"] == alone[0]
    assert len(set(alone)) > 1
    assert scores[3]["value"] == pytest.approx(np.mean(alone))
    assert scores[3]["std_over_seeds"] == pytest.approx(np.std(alone, ddof=1))
    assert scores[3]["half_width_over_seeds"] == pytest.approx(4.302653 * np.std(alone, ddof=1) / 3**0.5)
    assert scores[0]["std_over_seeds"] is None
    assert scores[0]["half_width_over_seeds"] is None
    both = mauve(*sides, evaluator, [1, 2, 3], seed=4)
    assert both["mauve_over_seeds"] == scores[3]
    assert both["mauve"] == mauve(*sides, evaluator, [4])["mauve"]


def test_too_few_texts_are_refused(evaluator):
    few = np.zeros((19, 8), dtype=np.float32)
    with pytest.raises(ArcmaskError, match="20 texts on each side"):
        mauve(few, few, evaluator, [25])
