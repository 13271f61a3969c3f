"""`arcmask explore`: write a page that shows how a sample forms, step by step."""

import webbrowser
from pathlib import Path

from arcmask.checkpoint import load_for_use
from arcmask.files import writable
from arcmask.report.explorer import write_page
from arcmask.sampling.side_by_side import trace_arms
from arcmask.settings.explore import ExploreConfig


def run(config: ExploreConfig) -> None:
    """Sample each arm, write the page and print its path; with `config.open`, open it in a browser."""
    out = writable(Path(config.out))
    print(write_page(config, trace_arms(config, load_for_use)))
    if config.open:
        webbrowser.open(out.absolute().as_uri())
