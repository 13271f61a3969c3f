"""Costs: the count knows every operation that the operators use, and finds what they must cost."""

import pytest
import torch

from arcmask.diagnostics import blend_costs, sphere_paths
from arcmask.diagnostics.cost import counted, paper_costs
from arcmask.diagnostics.drawing import draw
from arcmask.feedback import OPERATORS, operator


def costs(width: int = 64, k: int = 3, steps: int = 3):
    table = torch.randn(20, width, generator=torch.Generator().manual_seed(0))
    return blend_costs(table, 19, top_k=k, karcher_steps=steps, repeats=1).operators


def test_every_operation_of_every_operator_is_counted():
    found = costs()
    assert set(found) == set(OPERATORS) - {"none"}
    assert {name: cost.not_counted for name, cost in found.items()} == {name: [] for name in found}


def test_an_operator_from_outside_is_covered_by_the_costs_and_the_sphere():
    @operator("halfway", label="half-way")
    def halfway(mask, candidates, probs, weight):  # noqa: ARG001
        return mask + weight[:, None] * (candidates[:, 0] - mask) / 2

    try:
        assert costs()["halfway"].flops == 4 * 64
        record = sphere_paths(2.0)
        assert "half-way 0." in record.reading
        assert draw(record).axes[2].get_lines()[-1].get_label() == "half-way"
    finally:
        del OPERATORS[halfway.name]


def test_counting_a_known_computation():
    a, b = torch.ones(4, 5), torch.ones(5, 6)
    counter = counted(lambda: ((a @ b).sin() + 1).sum())
    # 2 * 4 * 5 * 6 for the product; 24 sums; 24 numbers added up; 24 sines.
    assert (counter.flops, counter.trigonometric, counter.unknown) == (240 + 24 + 24, 24, set())
    assert counted(lambda: a.erf()).unknown == {"erf"}


@pytest.mark.parametrize("k", [1, 3, 5])
def test_linear_costs_a_weighted_sum_and_a_blend(k):
    assert costs(k=k)["linear"].flops == (2 * k + 3) * 64
    assert costs(k=k)["linear"].trigonometric == 0


@pytest.mark.parametrize(("k", "steps"), [(3, 3), (3, 1), (5, 3)])
def test_the_gram_form_costs_what_its_products_cost(k, steps):
    narrow, wide = (costs(width, k, steps)["spherical"] for width in (64, 128))
    # Gram matrix, cosines with the mask, weighted sum; the mask and its orthogonal added; norm and scale.
    assert (wide.flops - narrow.flops) / 64 == 2 * k * k + 2 * k + 2 * k + 5 + 2 + 1
    # As in the paper for each step; the blend takes two more, for the arc between antipodes.
    assert narrow.trigonometric == steps * (2 * k + 2) + 4 + 2


def test_steps_cost_nothing_that_grows_with_the_width():
    per_step = [
        costs(width, steps=4)["spherical"].flops - costs(width, steps=3)["spherical"].flops for width in (64, 128)
    ]
    assert per_step[0] == per_step[1] > 0


def test_the_papers_formulas():
    assert paper_costs(768, 3, 3) == {"linear": (7 * 768, 0), "spherical": (54 * 768, 28)}
    found = costs(width=32)["spherical"]
    assert (found.paper_flops, found.paper_trigonometric) == (54 * 32, 28)
    assert costs()["renormalized"].paper_flops is None


def test_time_is_measured():
    assert all(cost.microseconds > 0 for cost in costs().values())
