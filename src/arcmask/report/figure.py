"""A figure with its data and a sentence on how to read it; as PNG with JSON beside, and as SVG that follows the page.

In the SVG every colour of ours becomes a CSS variable, so that the same drawing is legible on a light and a dark page;
its text stays text, and every id gets the figure's name, so that many of them can stand in one document.
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

SIZE = (4.9, 3.4)  # inches: half a page wide, and legible on a telephone
_MARKERS, _DASHES = "osD^vPX*", ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


@dataclass(frozen=True)
class Drawing:
    """A figure that can be written. `data` holds every number that is drawn."""

    name: str
    title: str
    caption: str
    figure: Figure
    data: Mapping[str, Any]
    wide: bool = False  # across the page

    def save(self, path: Path) -> None:
        """Write the PNG, and its data beside it."""
        figures.save(self.figure, path, {"title": self.title, "caption": self.caption, **self.data})

    def svg(self, name: str) -> str:
        """As an element for the page, in which no other has that name."""
        content = io.StringIO()
        with figures.styled(), rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            self.figure.savefig(content, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            self.figure.set_layout_engine("none")  # everything has its place now; finding it again costs as much
        return themed(content.getvalue(), name)


def themed(svg: str, name: str) -> str:
    """The SVG element alone, with ids of its own, colours as variables and the page's type."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(fill|stroke): #([0-9a-f]{6})\b", r"\1: var(--c-\2, #\2)", svg)
    # matplotlib writes the family into each text; the page's own replaces it.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    return svg.replace("<svg ", '<svg role="img" ', 1).strip()


def dark_colours(svgs: Iterable[str]) -> dict[str, str]:
    """For every colour variable in the drawings, its value on a dark page: ink and grid turn, the others lighten."""
    found = sorted({colour for svg in svgs for colour in re.findall(r"var\(--c-([0-9a-f]{6})", svg)})
    turned = {figures.INK: "#e3e8ea", figures.MUTED: "#9aa7ae", figures.GRID: "#333c42", "#ffffff": "#14181b"}
    return {f"--c-{colour}": turned.get(f"#{colour}") or _lighter(colour) for colour in found}


def _lighter(colour: str) -> str:
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * 0.68 + 255 * 0.32):02x}" for i in (0, 2, 4))


@dataclass(frozen=True)
class Look:
    """How an arm is drawn, in every figure of a report; arms of one colour differ in marker and dashes."""

    colour: str
    marker: str
    dashes: Any


def looks(arms: list[Arm]) -> dict[str, Look]:
    """By the arm's name; the colour is its operator's."""
    found: dict[str, Look] = {}
    for number, arm in enumerate(arms):
        colour = figures.colour(str(arm.train.get("operator", arm.name)))
        same = sum(look.colour == colour for look in found.values())
        found[arm.name] = Look(colour, _MARKERS[number % len(_MARKERS)], _DASHES[same % len(_DASHES)])
    return found


def name_axes(axes: Axes, title: str, x: str, y: str = "") -> None:
    """Title and labels."""
    axes.set_title(title, loc="left", fontsize=10.5, color=figures.INK)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def legend_below(axes: Axes) -> None:
    """The legend under the axes, where it hides nothing; in one row if that is wide enough."""
    _, labels = axes.get_legend_handles_labels()
    if labels:
        one_row = sum(len(label) + 7 for label in labels) < 60
        columns = len(labels) if one_row else 2 if max(map(len, labels)) < 27 else 1
        look: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.2, "frameon": False}
        with figures.styled():
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, **look)
