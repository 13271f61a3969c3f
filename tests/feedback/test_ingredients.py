"""The operators of docs/results/ingredients.py, with which the package's own form a factorial: mean x path x norm."""

from pathlib import Path

import pytest
import torch
from cases import Case, make_case
from literal import karcher_mean
from torch import Tensor

from arcmask.feedback import OPERATORS, find_operator

FILE = Path(__file__).parents[2] / "docs/results/ingredients.py"
FACTORIAL = {
    ("Euclidean", "chord", "own"): "linear",
    ("Euclidean", "chord", "mask"): "renormalized",
    ("Euclidean", "arc", "own"): f"{FILE}:euclidean_arc_own",
    ("Euclidean", "arc", "mask"): "spherical-euclidean",
    ("Fréchet", "chord", "own"): f"{FILE}:frechet_chord_own",
    ("Fréchet", "chord", "mask"): f"{FILE}:frechet_chord_mask",
    ("Fréchet", "arc", "own"): f"{FILE}:frechet_arc_own",
    ("Fréchet", "arc", "mask"): "spherical",
}
every = pytest.mark.parametrize(("mean", "path", "norm"), FACTORIAL)


@pytest.fixture(autouse=True)
def _registry_is_restored():
    before = dict(OPERATORS)
    yield
    OPERATORS.clear()
    OPERATORS.update(before)


def literal(mean: str, path: str, norm: str, inputs: Case) -> Tensor:
    """Compute the embeddings from the definitions, one position at a time, in float64."""
    rows = []
    mask = inputs.mask.double()
    for candidates, probs, weight in zip(*(x.double() for x in list(inputs)[1:]), strict=True):
        euclidean = sum(p * c for p, c in zip(probs, candidates, strict=True))
        direction = euclidean / euclidean.norm()
        if mean == "Fréchet":
            direction = karcher_mean(candidates / candidates.norm(dim=1, keepdim=True), probs, 3)
        blend = (1 - weight) * mask + weight * euclidean.norm() * direction
        length = blend.norm() if norm == "own" else mask.norm()
        if path == "arc":
            across = direction - (direction @ mask) / (mask @ mask) * mask
            turn = weight * torch.acos(direction @ mask / mask.norm())
            blend = turn.cos() * mask / mask.norm() + turn.sin() * across / across.norm()
        rows.append(length * blend / blend.norm())
    return torch.stack(rows)


@every
@pytest.mark.parametrize("d", [3, 32, 512])
def test_every_operator_of_the_factorial_is_what_its_ingredients_say(mean, path, norm, d):
    operator = find_operator(FACTORIAL[mean, path, norm])
    inputs = make_case(d, d=d, dtype=torch.float64)
    torch.testing.assert_close(operator(*inputs), literal(mean, path, norm, inputs), rtol=1e-6, atol=1e-6)
    single = make_case(d, d=d)
    torch.testing.assert_close(operator(*single).double(), literal(mean, path, norm, single), rtol=1e-4, atol=1e-4)


@every
def test_weight_zero_gives_the_mask_and_weight_one_the_mean(mean, path, norm):
    operator = find_operator(FACTORIAL[mean, path, norm])
    mask, candidates, probs, weight = make_case(4, d=48)
    assert torch.equal(operator(mask, candidates, probs, torch.zeros_like(weight)), mask.expand(5, -1))
    ends = operator(mask, candidates, probs, torch.ones_like(weight))
    pairs = zip(candidates, probs, strict=True)
    target = torch.stack([karcher_mean(c / c.norm(dim=1, keepdim=True), p, 3) for c, p in pairs])
    euclidean = (probs.unsqueeze(2) * candidates).sum(1)
    direction = target if mean == "Fréchet" else euclidean / euclidean.norm(dim=1, keepdim=True)
    length = euclidean.norm(dim=1, keepdim=True) if norm == "own" else mask.norm()
    torch.testing.assert_close(ends, length * direction, rtol=1e-4, atol=1e-4)


@every
def test_gradients_agree_with_finite_differences_and_are_finite_where_it_is_degenerate(mean, path, norm):
    operator = find_operator(FACTORIAL[mean, path, norm])
    inputs = [x.requires_grad_() for x in make_case(1, d=6, dtype=torch.float64)]
    assert torch.autograd.gradcheck(operator, inputs)
    mask, candidates, probs, weight = make_case(2, d=48)
    candidates[0] = mask  # the mean is the mask
    candidates[1], weight[1] = -mask, 0.5  # half-way to an antipode
    candidates[2, 1] = candidates[2, 0]
    weight[3] = 0.0
    probs[4] = torch.tensor([1.0, 0.0, 0.0])
    hard = [x.requires_grad_() for x in (mask, candidates, probs, weight)]
    result = operator(*hard)
    assert result.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), hard))


def test_the_norm_alone_does_not_change_the_turn():
    inputs = make_case(5, d=64, dtype=torch.float64)
    for mean, path in {(mean, path) for mean, path, _ in FACTORIAL}:
        own, masks = (find_operator(FACTORIAL[mean, path, norm])(*inputs) for norm in ("own", "mask"))
        torch.testing.assert_close(own / own.norm(dim=1, keepdim=True), masks / masks.norm(dim=1, keepdim=True))


CERTAINTY = FILE.with_name("certainty.py")


def turn_and_norm(inputs: Case) -> tuple[Tensor, Tensor]:
    """Return LERP's turn in radians and its norm, from the definitions, in float64."""
    mask, candidates, probs, weight = (x.double() for x in inputs)
    blend = torch.lerp(mask, (probs.unsqueeze(2) * candidates).sum(1), weight.unsqueeze(1))
    return torch.acos((blend @ mask) / blend.norm(dim=1) / mask.norm()), blend.norm(dim=1)


@pytest.mark.parametrize(
    ("name", "turn", "norm"),
    [
        ("norm_constant", "own", "mean"),
        ("norm_shuffled", "own", "shuffled"),
        ("turn_constant", "mean", "mask"),
        ("turn_shuffled", "shuffled", "mask"),
        ("norm_only", "none", "mean"),
    ],
)
def test_an_operator_that_hides_something_keeps_the_rest(name, turn, norm):
    inputs = make_case(3, m=40, d=64, dtype=torch.float64)
    mask, candidates, probs, _ = inputs
    result = find_operator(f"{CERTAINTY}:{name}")(*inputs)
    own_turn, own_norm = turn_and_norm(inputs)
    turns = torch.acos(((result @ mask) / result.norm(dim=1) / mask.norm()).clamp(-1, 1))
    for value, own, form in ((turns, own_turn, turn), (result.norm(dim=1), own_norm, norm)):
        if form == "shuffled":
            torch.testing.assert_close(value.sort().values, own.sort().values)
            assert (value - own).abs().median() > 0.1 * own.std()
        else:
            expected = {"own": own, "mean": own.mean(), "mask": mask.norm(), "none": torch.tensor(0.0)}[form]
            torch.testing.assert_close(value, expected.double().expand(40), atol=1e-6, rtol=1e-6)
    # Everything stays in the plane of the mask and the Euclidean mean.
    plane = torch.stack([mask.expand(40, -1), (probs.unsqueeze(2) * candidates).sum(1)], 1)
    inside = torch.linalg.lstsq(plane.mT, result.unsqueeze(2)).solution
    torch.testing.assert_close(plane.mT @ inside, result.unsqueeze(2), atol=1e-9, rtol=1e-9)
