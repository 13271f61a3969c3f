"""The masked positions that diagnostics look at: what is masked, and what is predicted there."""

import pytest
import torch
from models import small_mdlm
from planted import Constant, on_a_circle

from arcmask.diagnostics import predict, predictions
from arcmask.errors import ArcmaskError

V, MASK = 23, 22


def rows(n: int = 12, length: int = 16) -> torch.Tensor:
    return torch.randint(0, V - 1, (n, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_predictions_are_those_of_the_whole_softmax():
    model, clean = small_mdlm(), rows()
    (at,) = predict(model, clean, [0.4], top_k=3, seed=7)
    masked = torch.rand(clean.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64) < 0.4
    logits = model(clean.masked_fill(masked, MASK)).logits[masked]
    logits[:, MASK] = -torch.inf
    probs = logits.softmax(-1)
    top = probs.topk(3)
    assert torch.equal(at.targets, clean[masked])
    assert torch.equal(at.candidates.ids, top.indices)
    torch.testing.assert_close(at.candidates.probs, top.values / top.values.sum(1, keepdim=True))
    torch.testing.assert_close(at.candidates.entropy, -(probs * probs.clamp_min(1e-30).log()).sum(1))


def test_a_share_t_is_masked_and_stays_masked_later():
    clean = torch.arange(4000).reshape(1, 4000)
    denoiser = Constant(torch.eye(4001), torch.zeros(4001))
    earlier, later = predict(denoiser, clean, [0.3, 0.6])
    assert len(earlier) / 4000 == pytest.approx(0.3, abs=0.03)
    assert len(later) / 4000 == pytest.approx(0.6, abs=0.03)
    assert set(earlier.targets.tolist()) < set(later.targets.tolist())


def test_each_time_is_the_same_alone_as_among_others():
    together = predict(small_mdlm(), rows(), [0.2, 0.7], seed=3)
    for at in together:
        (alone,) = predict(small_mdlm(), rows(), [at.time], seed=3)
        assert torch.equal(alone.targets, at.targets)
        assert torch.equal(alone.candidates.probs, at.candidates.probs)


def test_another_seed_masks_other_positions():
    first, second = (predict(small_mdlm(), rows(), [0.5], seed=seed)[0] for seed in (0, 1))
    assert first.targets.tolist() != second.targets.tolist()


def test_parts_change_nothing(monkeypatch):
    (whole,) = predict(small_mdlm().double(), rows(), [0.5])
    monkeypatch.setattr(predictions, "_PASS", 32)
    monkeypatch.setattr(predictions, "_CHUNK", 5 * V)
    (parts,) = predict(small_mdlm().double(), rows(), [0.5])
    assert torch.equal(parts.candidates.ids, whole.candidates.ids)
    torch.testing.assert_close(parts.candidates.probs, whole.candidates.probs)


def test_a_text_of_which_nothing_is_masked_is_an_error():
    denoiser = Constant(on_a_circle(10, 20), torch.zeros(3))
    with pytest.raises(ArcmaskError, match=r"at t = 1e-09 none of the 4 tokens is masked; use more tokens"):
        predict(denoiser, torch.zeros(1, 4, dtype=torch.long), [1e-9])
