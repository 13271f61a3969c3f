"""Recipes by name: training runs for `arcmask train`, experiments for `arcmask reproduce`."""

from collections.abc import Callable, Mapping
from functools import partial

from arcmask.errors import check_choice
from arcmask.recipes.antibody_plans import ANTIBODY
from arcmask.recipes.arms import add_operators
from arcmask.recipes.paper_plans import PAPER
from arcmask.recipes.plan_files import is_plan_file, open_plan, plan_to_yaml
from arcmask.recipes.quickstart_plans import QUICKSTART
from arcmask.recipes.runs import Recipe, owt_continue, sotu_tiny, sotu_tiny_base
from arcmask.settings.experiment import Plan
from arcmask.settings.operators import OPERATOR_NAMES

__all__ = [
    "EXPERIMENTS",
    "RECIPES",
    "Recipe",
    "add_operators",
    "find_experiment",
    "find_recipe",
    "list_recipes",
    "plan_to_yaml",
]

RECIPES: dict[str, Callable[[], Recipe]] = {"sotu-tiny-base": sotu_tiny_base}
RECIPES |= {f"sotu-tiny-{operator}": partial(sotu_tiny, operator) for operator in OPERATOR_NAMES}
RECIPES |= {f"owt-continue-{operator}": partial(owt_continue, operator) for operator in OPERATOR_NAMES}

EXPERIMENTS: dict[str, Callable[[], Plan]] = {
    function.__name__.replace("_", "-"): function for function in (*QUICKSTART, *PAPER, *ANTIBODY)
}


def list_recipes(recipes: Mapping[str, Callable[[], object]]) -> str:
    """Return a line for each recipe: its name, and what its function's docstring says first.

    >>> from arcmask.recipes import RECIPES, list_recipes
    >>> print(list_recipes({"sotu-tiny-base": RECIPES["sotu-tiny-base"]}))
    sotu-tiny-base  Train a small character model from scratch, without feedback.
    """
    width = max(map(len, recipes))
    functions = {
        name: getattr(recipe, "func", recipe) for name, recipe in recipes.items()
    }  # of a partial, its function
    return "\n".join(
        f"{name:{width}}  {(function.__doc__ or '').strip().splitlines()[0]}" for name, function in functions.items()
    )


def find_recipe(name: str) -> Recipe:
    """Return the training recipe of a name; an unknown name lists the choices.

    >>> from arcmask.recipes import find_recipe
    >>> find_recipe("owt-continue-spherical").train.steps
    7000
    """
    check_choice("recipe", name, RECIPES)
    return RECIPES[name]()


def find_experiment(name: str) -> Plan:
    """Return the experiment of a name, or of a file (FILE.yaml, FILE.py or FILE.py:FUNCTION) with a plan of one's own.

    An unknown name lists the choices.

    >>> from arcmask.recipes import find_experiment
    >>> list(find_experiment("quickstart").arms)
    ['base', 'spherical-tuned', 'none', 'spherical-0.3']
    """
    if is_plan_file(name):
        return open_plan(name)
    check_choice("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]()
