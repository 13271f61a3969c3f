"""Griffe extension: show the `>>>` examples of docstrings as code. Markdown would take them for quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:^(?!\s*$).+\n?)*)(?:\n*(?:^>>> .*\n(?:^(?!\s*$).+\n?)*))*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put a fence around every example."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            text = obj.docstring.value + "\n"
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text).rstrip()
