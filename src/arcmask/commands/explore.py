"""`arcmask explore`: write a page that shows how a sample forms, step by step."""

import json
import re
import webbrowser
from pathlib import Path

from arcmask.checkpoint import load_for_use
from arcmask.progress import announce
from arcmask.report.explorer import write_page
from arcmask.run_folder import check_output
from arcmask.sampling.side_by_side import trace_arms
from arcmask.settings.explore import ExploreConfig


def run(config: ExploreConfig) -> None:
    """Sample each arm, write the page and print its path; with `config.open`, open it in a browser."""
    out = Path(config.out)
    if notice := check_output(out, {"command": config.command()}, _settings, overwrite=config.overwrite):
        announce(notice)
    print(write_page(config, trace_arms(config, load_for_use)))
    if config.open:
        webbrowser.open(out.absolute().as_uri())


def _settings(page: Path) -> dict[str, str] | None:
    """Return the command that wrote a page; None if it is not a page of the explorer."""
    # Quotes inside of strings are escaped, so that the pattern matches the key alone.
    match = re.search(r'"command":("(?:[^"\\]|\\.)*")', page.read_text(encoding="utf-8", errors="replace"))
    return None if match is None else {"command": json.loads(match[1])}
