"""Recipes by name: training runs for `arcmask train`, experiments for `arcmask reproduce`."""

from collections.abc import Callable
from functools import partial

from arcmask.errors import unknown_name
from arcmask.experiment.plan import Plan
from arcmask.recipes.paper import PLANS as PAPER
from arcmask.recipes.quickstart import PLANS as QUICKSTART
from arcmask.recipes.training import Recipe, owt_continue, sotu_tiny, sotu_tiny_base

_ARMS = ("none", "linear", "spherical")
RECIPES: dict[str, Callable[[], Recipe]] = {"sotu-tiny-base": sotu_tiny_base}
RECIPES |= {f"sotu-tiny-{operator}": partial(sotu_tiny, operator) for operator in _ARMS}
RECIPES |= {f"owt-continue-{operator}": partial(owt_continue, operator) for operator in _ARMS}

EXPERIMENTS: dict[str, Callable[[], Plan]] = QUICKSTART | PAPER


def find_recipe(name: str) -> Recipe:
    """The training recipe of that name; an unknown name lists the known ones."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]()


def find_experiment(name: str) -> Plan:
    """The experiment of that name; an unknown name lists the known ones."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]()
