"""Calibration on a model: the entropies are the draft pass's, and the feedback starts with the paper's mean weight."""

import numpy as np
import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.errors import ArcmaskError
from arcmask.feedback import Gate, SoftMask
from arcmask.feedback.calibration import POSITIONS, draft_entropies

ROWS = torch.randint(0, 22, (6, 16), generator=torch.Generator().manual_seed(3))


def entropies_by_hand(model, rows: torch.Tensor, masked: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        logits = model(input_ids=rows.masked_fill(masked, model.mask_id)).logits[masked].double().numpy()
    logits[:, model.mask_id] = -np.inf
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    return -(probs * np.log(np.where(probs > 0, probs, 1))).sum(1)


def test_entropies_are_those_of_masked_positions_at_times_in_the_band():
    model = small_mdlm().double()
    draw = Gate(probability=1.0, band=(0.4, 0.6), reading="draw").draw(5, 0, *ROWS.shape)
    assert ((draw.time >= 0.4) & (draw.time <= 0.6)).all()
    entropy = draft_entropies(model, ROWS, band=(0.4, 0.6), seed=5)
    np.testing.assert_allclose(entropy.numpy(), entropies_by_hand(model, ROWS, draw.masked), rtol=1e-9)


def test_at_most_512_positions_are_measured_and_dropout_is_off_meanwhile():
    model = small_mdlm(dropout=0.5).train()
    rows = ROWS.repeat(40, 1)
    entropy = draft_entropies(model, rows)
    assert len(entropy) == POSITIONS == 512
    assert model.training
    assert torch.equal(entropy, draft_entropies(model, rows))
    assert not torch.equal(entropy, draft_entropies(model, rows, seed=1))


def test_calibrated_feedback_starts_with_the_mean_weight_for_every_operator(operator_name):
    model = small_mdlm()
    feedback = SoftMask.calibrated(model, ROWS, operator_name, top_k=2, seed=7)
    assert (feedback.operator, feedback.top_k) == (operator_name, 2)
    masked = Gate(probability=1.0, reading="draw").draw(7, 0, *ROWS.shape).masked
    entropy = torch.from_numpy(entropies_by_hand(model, ROWS, masked))
    assert feedback.confidence(entropy).mean().item() == pytest.approx(0.135, abs=1e-3)


def test_a_denoiser_of_ones_own_can_be_calibrated():
    class Bigram:
        mask_id, max_length, table = 4, None, torch.eye(5)

        def hidden(self, embeddings):
            return embeddings

        def logits(self, hidden_rows):
            return hidden_rows @ torch.arange(25.0).view(5, 5)

    feedback = SoftMask.calibrated(Bigram(), torch.randint(0, 4, (8, 32)))
    assert feedback.confidence.centre.item() < 0


def test_the_shipped_model_has_extreme_weights_by_default_and_not_when_calibrated():
    denoiser = arcmask.load("sotu-tiny")
    rows = torch.randint(0, 27, (16, 128), generator=torch.Generator().manual_seed(0))
    entropy = draft_entropies(denoiser, rows).float()
    plain, fitted = SoftMask().confidence, SoftMask.calibrated(denoiser, rows).confidence
    assert "all near their top" in plain.describe_extreme(plain(entropy))
    assert fitted.describe_extreme(fitted(entropy)) is None


def test_rows_that_cannot_be_measured_are_refused():
    with pytest.raises(ArcmaskError, match=r"rows must have the shape \(N, L\)"):
        draft_entropies(small_mdlm(), ROWS[0])
    with pytest.raises(ArcmaskError, match="none of the 1 tokens is masked"):
        draft_entropies(small_mdlm(), ROWS[:1, :1], band=(0.0, 1e-9))
