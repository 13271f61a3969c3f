"""The scorer of antibodies: a row scores the same alone and in a batch, and the real weights prefer real chains."""

import random
from pathlib import Path

import pytest
import torch

import arcmask
from arcmask.errors import ArcmaskError
from arcmask.evaluation import open_evaluator
from arcmask.evaluation.evaluator import NAMED
from arcmask.evaluation.sapiens import RESIDUES, Sapiens, _build, _Names
from arcmask.evaluation.scores import text_losses
from arcmask.experiment import Changes
from arcmask.experiment.plan_checks import check_scorable
from arcmask.recipes import find_experiment
from arcmask.settings.evaluate import PerplexitySettings


def weights() -> dict[str, torch.Tensor]:
    """Random weights with fairseq's names and Sapiens' shapes."""
    shapes = {"embed_tokens.weight": (25, 128), "embed_positions.weight": (146, 128)}
    shapes |= {"emb_layer_norm.weight": (128,), "emb_layer_norm.bias": (128,)}
    linear = {f"self_attn.{name}_proj": (128, 128) for name in ("k", "v", "q", "out")}
    linear |= {"fc1": (256, 128), "fc2": (128, 256)}
    for layer in range(4):
        for name, shape in linear.items():
            shapes |= {f"layers.{layer}.{name}.weight": shape, f"layers.{layer}.{name}.bias": shape[:1]}
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            shapes |= {f"layers.{layer}.{name}.weight": (128,), f"layers.{layer}.{name}.bias": (128,)}
    shapes = {f"sentence_encoder.{name}": shape for name, shape in shapes.items()}
    shapes |= {"lm_head.weight": (25, 128), "lm_head.bias": (25,), "lm_head.dense.weight": (128, 128)}
    shapes |= {f"lm_head.{name}": (128,) for name in ("dense.bias", "layer_norm.weight", "layer_norm.bias")}
    generator = torch.Generator().manual_seed(0)
    made = {f"decoder.{name}": 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    made["decoder.lm_head.weight"] = made["decoder.sentence_encoder.embed_tokens.weight"]
    return made


@pytest.fixture(scope="module")
def scorer() -> Sapiens:
    model = _build(weights()).eval()
    sizes = {"start_id": 0, "end_id": None, "max_length": 143, "own_tokenizer": "residues"}
    return Sapiens(
        name="s", sha256="0", model=model, tokenizer=_Names(), precision="float32", has_plain_head=True, **sizes
    )


def chains(count: int) -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(RESIDUES, k=draw.randint(5, 142))) for _ in range(count)]


def test_a_chain_scores_the_same_alone_and_in_a_padded_batch(scorer):
    texts = chains(9)
    together = text_losses(scorer, texts, PerplexitySettings(), cache=None, batch_tokens=10_000)
    alone = [text_losses(scorer, [text], PerplexitySettings(), cache=None)[0] for text in texts]
    assert [loss.tokens for loss in together] == [len(text) for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.nats == pytest.approx(other.nats, rel=1e-5)


def test_the_loss_of_a_residue_is_at_its_own_position_among_twenty(scorer):
    text = chains(1)[0]
    ids = [0, *(4 + RESIDUES.index(residue) for residue in text), 2]
    with torch.no_grad():
        logits = scorer.model(input_ids=torch.tensor([ids])).logits[0].double()
    expected = sum(
        float(torch.logsumexp(logits[place, 4:24], 0) - logits[place, token])
        for place, token in enumerate(ids)
        if token >= 4
    )
    assert text_losses(scorer, [text], PerplexitySettings(), cache=None)[0].nats == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (30 * "A" + "CBZ", "'AAAAAAAAACBZ' has 'B' at position 32, but sapiens-vh knows only ACDEF"),
        ("A" * 143, "has 143 residues, but sapiens-vh scores up to 142"),
        (">chain 1", "; give bare sequences in place of FASTA"),
    ],
)
def test_what_is_no_heavy_chain_is_refused(scorer, text, reason):
    with pytest.raises(ArcmaskError, match=reason):
        scorer.encode([text])


def test_evaluate_names_the_sample_that_cannot_be_read_or_leaves_it_out(scorer, tmp_path, monkeypatch):
    monkeypatch.setitem(NAMED, "small", (Path, lambda: scorer))
    path, (good, other) = tmp_path / "chains.txt", chains(2)
    path.write_text(f"{good}\n{other}-\n")
    with pytest.raises(ArcmaskError, match=rf"sample 2 of {path}: .* has '-' at position {len(other) + 1}"):
        arcmask.evaluate(str(path), evaluator="small")
    with pytest.warns(UserWarning, match=f"sample 2 of {path}.*; it is left out"):
        result = arcmask.evaluate(str(path), evaluator="small", bad_lines="skip")
    found = result["sets"][str(path)]
    assert found["count"] == 1
    assert found["scores"].keys() == {"generative_perplexity", "entropy"}, "a sequence has no words"
    path.write_text("-\n")
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ArcmaskError, match="no sample that s can read"):
        arcmask.evaluate(str(path), evaluator="small", bad_lines="skip")


@pytest.mark.parametrize(("settings", "reason"), [({"start": "none"}, "start is none"), ({"context": 64}, "is 64")])
def test_settings_that_hide_a_part_of_a_chain_are_refused(scorer, settings, reason):
    with pytest.raises(ArcmaskError, match=reason):
        text_losses(scorer, chains(2), PerplexitySettings(**settings), cache=None)


def test_prompts_that_cannot_be_scored_are_refused_before_an_experiment_begins(scorer, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text(f"AC[MASK]\n{'A' * 140}[MASK][MASK]\n")
    check_scorable(Changes(prompts=str(path)).apply(find_experiment("antibody")), scorer)
    path.write_text(f"AC[MASK]\n{'A' * 140}[MASK][MASK][MASK]\n")
    with pytest.raises(ArcmaskError, match="has 143 residues, but sapiens-vh scores up to 142"):
        check_scorable(Changes(prompts=str(path)).apply(find_experiment("antibody")), scorer)


@pytest.mark.slow
def test_the_real_scorer_prefers_a_chain_to_its_shuffle():
    chain = "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGG"
    letters = list(chain)
    random.Random(0).shuffle(letters)
    scorer = open_evaluator("sapiens-vh")
    real, shuffled = text_losses(scorer, [chain, "".join(letters)], PerplexitySettings(), cache=None)
    assert real.nats / real.tokens < 0.6 < shuffled.nats / shuffled.tokens
