"""How our figures look, and how they are written: a PNG and its data as JSON beside it.

Knows matplotlib and the names that colours stand for; nothing of models. Figures are made without pyplot and leave its
global state alone.
"""

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS
from arcmask.feedback.registry import default_colour
from arcmask.files import json_bytes, write_whole

try:
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ModuleNotFoundError:
    raise ArcmaskError("figures need matplotlib: pip install 'arcmask[report]'") from None

__all__ = [
    "GRID",
    "INK",
    "MASK",
    "MUTED",
    "START",
    "Axes",
    "Figure",
    "colour",
    "figure",
    "panels",
    "save",
    "styled",
]

DPI = 150
INK, MUTED, GRID = "#253237", "#5c6b73", "#dfe4e7"
MASK = "#b23a48"  # where the mask itself stands
START = "#8e5ea2"  # how something was before training
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=[record.colour for name, record in OPERATORS.items() if name != "none"]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 10.5,
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "lines.linewidth": 2.0,
    "savefig.dpi": DPI,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@contextmanager
def styled() -> Iterator[None]:
    """The context, or with `@styled()` the function, in which all that is drawn has our look."""
    with mpl.rc_context(_STYLE):
        yield


def figure(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """An empty figure of that size in inches, and its axes. Draw in it under `styled()`."""
    made, (axes,) = panels(width, height, 1)
    return made, axes


def panels(width: float, height: float, columns: int, **arrangement: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure, and its axes side by side; `arrangement` goes to matplotlib's `subplots`."""
    with styled():
        made = Figure(figsize=(width, height))
        FigureCanvasAgg(made)
        axes = made.subplots(1, columns, squeeze=False, **arrangement)
    return made, list(axes[0])


def colour(name: str) -> str:
    """Return the colour of an operator, or of an operator from outside the package that is only known by its name."""
    return OPERATORS[name].colour if name in OPERATORS else default_colour(name)


def save(made: Figure, path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """Write PATH.png, and PATH.json with what is drawn in it; each appears whole."""
    png = Path(path)
    if png.suffix != ".png":
        raise ArcmaskError(f"a figure is written as .png, but was given the name {png.name}")
    content = io.BytesIO()
    with styled():
        # No software version inside: equal data give equal bytes.
        made.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    write_whole(png.with_suffix(".json"), json_bytes(dict(data)))
    write_whole(png, content.getvalue())
