"""Figures of a report: a drawing with its data and caption, written as PNG with JSON or as SVG for the page.

In the SVG every colour is a CSS variable, so that one drawing is legible on a light and a dark page. Text stays text,
and every id begins with the figure's name, so that many figures fit in one document.
"""

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arcmask import figures
from arcmask.report.folder import Arm

SIZE = (4.9, 3.4)  # inches: half the width of a page, and legible on a phone
_MARKERS, _DASHES = "osD^vPX*", ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_SVG_EDITS = (  # pattern, replacement; NAME is the figure's name
    (r"<metadata>.*?</metadata>", ""),
    (r'^(<svg[^>]*?) height="[^"]*"', r"\1"),
    (r'^(<svg[^>]*?) width="[^"]*"', r"\1"),
    (r"^<svg ", '<svg role="img" '),
    (r'\bid="', 'id="NAME-'),
    (r'(href="#|url\(#)', r"\1NAME-"),
    (r"(fill|stroke): #([0-9a-f]{6})\b", r"\1: var(--c-\2, #\2)"),
    (r"font: ([\d.]+px) [^;\"]*", r"font-size: \1"),  # the page has its own font family
)


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption. `data` holds every number in the figure."""

    name: str
    title: str
    caption: str
    figure: Figure
    data: Mapping[str, Any]
    wide: bool = False  # across the page

    def save(self, path: Path) -> None:
        """Write the PNG file, and a JSON file of the data."""
        figures.save(self.figure, path, {"title": self.title, "caption": self.caption, **self.data})

    def svg(self, name: str) -> str:
        """Return the figure as an SVG element; `name` must be unique on the page."""
        content = io.StringIO()
        figures.disable_formulas(self.figure)
        with figures.styled(), rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            self.figure.savefig(content, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            self.figure.set_layout_engine("none")  # the layout is done; computing it again for the PNG is slow
        svg = content.getvalue()
        svg = svg[svg.index("<svg") :]
        for pattern, replacement in _SVG_EDITS:
            svg = re.sub(pattern, replacement.replace("NAME", name), svg, flags=re.DOTALL)
        return svg.strip()


def dark_colours(svgs: Iterable[str]) -> dict[str, str]:
    """Return the value on a dark page of every colour variable: ink and grid are inverted, the others lightened."""
    inverted = {figures.INK: "#e3e8ea", figures.MUTED: "#9aa7ae", figures.GRID: "#333c42", "#ffffff": "#14181b"}
    colours = sorted({colour for svg in svgs for colour in re.findall(r"var\(--c-([0-9a-f]{6})", svg)})
    return {f"--c-{colour}": inverted.get(f"#{colour}") or _lighter(colour) for colour in colours}


def _lighter(colour: str) -> str:
    return "#" + "".join(f"{round(value * 0.68 + 255 * 0.32):02x}" for value in bytes.fromhex(colour))


@dataclass(frozen=True)
class Look:
    """How an arm is drawn in every figure of a report. Arms of one colour differ in marker and dashes."""

    colour: str
    marker: str
    dashes: Any


def looks(arms: list[Arm]) -> dict[str, Look]:
    """Return each arm's look by name. The colour is the arm's own, or its operator's."""
    by_name: dict[str, Look] = {}
    for number, arm in enumerate(arms):
        colour = arm.colour or figures.colour(arm.operator)
        same = sum(look.colour == colour for look in by_name.values())
        by_name[arm.name] = Look(colour, _MARKERS[number % len(_MARKERS)], _DASHES[same % len(_DASHES)])
    return by_name


def name_axes(axes: Axes, title: str, x: str, y: str = "") -> None:
    """Set the title and the labels."""
    axes.set_title(title, loc="left", fontsize=10.5, color=figures.INK)
    axes.set(xlabel=x, ylabel=y)


def legend_below(axes: Axes) -> None:
    """Put the legend below the axes, in one row if it fits."""
    _, labels = axes.get_legend_handles_labels()
    if labels:
        one_row = sum(len(label) + 7 for label in labels) < 60
        columns = len(labels) if one_row else 2 if max(map(len, labels)) < 27 else 1
        look: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.2, "frameon": False}
        with figures.styled():
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, **look)
