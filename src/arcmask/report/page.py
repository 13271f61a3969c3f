"""Render a report as one HTML file that contains its style, script and figures and makes no requests."""

import base64
import re
from importlib.resources import files
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.report.document import Chapter, Picture
from arcmask.report.figure import Drawing, dark_colours

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError:
    raise ArcmaskError("a report needs jinja2: pip install 'arcmask[report]'") from None

# Spaces at which a line must not break: inside "5 %", "T = 16", "p < 0.001" and "1 ± 2".
_FIXED_SPACES = re.compile(
    r"(?<=\d) (?=%)|(?<=\bT) (?== \d)|(?<==) (?=\d)|(?<=\bp) (?=[<=])|(?<=<) (?=\d)| (?=\u00b1)|(?<=\u00b1) "
)


def render(title: str, chapters: list[Chapter], version: str, runs: str = "") -> str:
    """Return the page, with the names of its runs in its head.

    All text is escaped; only the package's own SVG, style and script are not.
    """
    figures = [(chapter.name, figure) for chapter in chapters for figure in chapter.figures()]
    tables = [table for chapter in chapters for table in chapter.tables()]
    pictures = {id(figure): _picture(figure, f"{name}-{figure.name}") for name, figure in figures}
    # Tables and figures are numbered through the whole document.
    numbers = {id(table): number for number, table in enumerate(tables, 1)}
    numbers |= {id(figure): number for number, (_, figure) in enumerate(figures, 1)}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_keep_together, trim_blocks=True, lstrip_blocks=True
    )
    dark = dark_colours(str(picture) for picture in pictures.values())
    return environment.from_string(_source("report.html")).render(
        title=title,
        chapters=chapters,
        version=version,
        runs=runs,
        has_tables=bool(tables),
        has_figures=bool(figures),
        picture=lambda figure: pictures[id(figure)],
        number=lambda item: numbers[id(item)],
        dark=Markup("".join(f"{name}: {colour}; " for name, colour in dark.items())),
        style=Markup(_source("style.css")),
        script=Markup(_source("script.js")),
    )


def _keep_together(value: Any) -> Any:
    """Replace spaces inside of numbers with units and signs by no-break spaces."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return _FIXED_SPACES.sub("\u00a0", value) if is_text else value


def _source(name: str) -> str:
    return (files("arcmask.report") / "page" / name).read_text()


def _picture(figure: Drawing | Picture, name: str) -> Markup:
    if isinstance(figure, Drawing):
        return Markup(figure.svg(name))
    content = base64.b64encode(figure.png).decode()
    return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(figure.title, Markup(content))
