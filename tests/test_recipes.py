"""Every recipe builds, fits its data, and can be shown on the command line."""

import subprocess
import sys

import pytest

from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS
from arcmask.model import SIZES
from arcmask.recipes import RECIPES, find_recipe


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_recipe_builds_and_its_parts_fit(name):
    recipe = find_recipe(name)
    assert recipe.train.operator in OPERATORS
    assert recipe.train.data == recipe.prepare.out
    assert recipe.train.batch_size % recipe.train.micro_batch == 0
    if recipe.train.init.startswith("new:"):
        assert SIZES[recipe.train.init.removeprefix("new:")]["model_length"] >= recipe.prepare.length


def test_arms_differ_in_their_operator_alone():
    for family in ("sotu-tiny", "owt-continue"):
        arms = [vars(find_recipe(f"{family}-{operator}").train) for operator in ("none", "linear", "spherical")]
        for arm in arms[1:]:
            assert {key for key in arm if arm[key] != arms[0][key]} == {"operator"}


def test_the_papers_recipe_is_the_papers():
    train = find_recipe("owt-continue-spherical").train
    assert (train.steps, train.batch_size, train.warm_up) == (7000, 512, 200)
    assert (train.learning_rate, train.confidence_learning_rate) == (3e-5, 1e-2)
    assert (train.gate_probability, train.band, train.top_k, train.karcher_steps, train.ema) == (
        0.5,
        (0.2, 0.8),
        3,
        3,
        0.9999,
    )
    assert (train.scale, train.centre, train.steepness) == (0.5, -4.0, 10 / 1.5)


def test_a_setting_given_on_the_command_line_goes_over_the_recipe():
    arguments = ["-m", "arcmask", "train", "sotu-tiny-linear", "--steps", "7", "--seed", "3", "--print-config"]
    result = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    assert "operator: linear" in result.stdout
    assert "steps: 7" in result.stdout
    assert "seed: 3" in result.stdout


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ArcmaskError, match="unknown recipe 'x'; choose one of: owt-continue-linear, "):
        find_recipe("x")
    result = subprocess.run([sys.executable, "-m", "arcmask", "train"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("arcmask: arcmask train needs a RECIPE, or --data and --init; choose one of: owt-")
