"""The page: one HTML file with its style, its script and its figures inside. It asks no network for anything."""

import base64
import re
from collections.abc import Callable
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


def render(title: str, chapters: list[Chapter], version: str) -> str:
    """The whole file. Text is escaped wherever it comes from; only our own SVG, style and script are not."""
    pictures = {
        id(figure): _picture(figure, f"{chapter.name}-{figure.name}")
        for chapter in chapters
        for figure in chapter.figures()
    }
    # Whatever a template forgets is an error, not an empty place.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_unbroken, trim_blocks=True, lstrip_blocks=True
    )
    dark = dark_colours(str(picture) for picture in pictures.values())
    return environment.from_string(_source("report.html")).render(
        title=title,
        chapters=chapters,
        version=version,
        picture=lambda figure: pictures[id(figure)],
        number=_numbers(chapters),
        dark=Markup("".join(f"{name}: {colour}; " for name, colour in dark.items())),
        style=Markup(_source("style.css")),
        script=Markup(_source("script.js")),
    )


def _unbroken(value: Any) -> Any:
    """Text in which a number stays with its sign: no line ends between them."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub(
        r"(?<=\d) (?=%)|(?<=\bT) (?== \d)|(?<==) (?=\d)|(?<=\bp) (?=[<=])|(?<=<) (?=\d)| (?=\u00b1)|(?<=\u00b1) ",
        "\u00a0",
        value,
    )


def _source(name: str) -> str:
    return (files("arcmask.report") / "page" / name).read_text()


def _picture(figure: Drawing | Picture, name: str) -> Markup:
    if isinstance(figure, Drawing):
        return Markup(figure.svg(name))
    content = base64.b64encode(figure.png).decode()
    return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(figure.title, Markup(content))


def _numbers(chapters: list[Chapter]) -> Callable[[Any], int]:
    """Table 1, 2, …, and Figure 1, 2, … through the whole document."""
    found: dict[int, int] = {}
    tables: list[Any] = [table for chapter in chapters for table in chapter.tables()]
    figures: list[Any] = [figure for chapter in chapters for figure in chapter.figures()]
    for things in (tables, figures):
        found |= {id(thing): number for number, thing in enumerate(things, 1)}
    return lambda thing: found[id(thing)]
