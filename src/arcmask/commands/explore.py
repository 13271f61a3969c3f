"""`arcmask explore`: write a page that shows how a sample forms, step by step."""

from arcmask.api import write_explorer
from arcmask.checkpoint import load_for_use
from arcmask.settings.explore import ExploreConfig


def run(config: ExploreConfig) -> None:
    """Sample each arm, write the page and print its path; with `config.open`, open it in a browser."""
    print(write_explorer(config, load_for_use))
