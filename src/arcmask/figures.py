"""The look of the figures, and how they are written: a PNG file, and its data in a JSON file beside it.

This module knows matplotlib and the operators' colours, and no models. It does not use pyplot or its global state.
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
    from matplotlib.text import Text
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
    "disable_formulas",
    "figure",
    "panels",
    "save",
    "styled",
]

DPI = 150
INK, MUTED, GRID = "#253237", "#5c6b73", "#dfe4e7"
MASK = "#b23a48"  # the mask
START = "#8e5ea2"  # before training
_STYLE: Any = {
    **dict.fromkeys(("axes.labelcolor", "axes.titlecolor", "text.color", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.axisbelow", "axes.grid", "figure.constrained_layout.use"), True),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top"), False),
    **dict.fromkeys(("figure.dpi", "savefig.dpi"), DPI),
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=[record.colour for name, record in OPERATORS.items() if name != "none"]),
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.edgecolor": "none",
    "legend.fontsize": 9,
    "legend.framealpha": 0.85,
    "lines.linewidth": 2.0,
}


@contextmanager
def styled() -> Iterator[None]:
    """Apply the look to everything drawn in a `with` block or, as `@styled()`, in a function."""
    with mpl.rc_context(_STYLE):
        yield


def figure(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """Return an empty figure of that size in inches, and its axes. Draw in it under `styled()`.

    >>> from arcmask.figures import colour, figure, styled
    >>> canvas, axes = figure(4, 3)
    >>> with styled():
    ...     lines = axes.plot([0, 1], [1, 0], color=colour("spherical"))
    """
    canvas, (axes,) = panels(width, height, 1)
    return canvas, axes


def panels(width: float, height: float, columns: int, **arrangement: Any) -> tuple[Figure, list[Axes]]:
    """Return an empty figure, and axes side by side; `arrangement` goes to matplotlib's `subplots`."""
    with styled():
        canvas = Figure(figsize=(width, height))
        FigureCanvasAgg(canvas)
        axes = canvas.subplots(1, columns, squeeze=False, **arrangement)
    return canvas, list(axes[0])


def colour(name: str) -> str:
    """Return the colour of an operator, also of one from outside the package that is only known by its name."""
    return OPERATORS[name].colour if name in OPERATORS else default_colour(name)


def disable_formulas(canvas: Figure) -> None:
    """Show dollar signs in labels as they are. Matplotlib would read formulas; only the ticks of log axes have them."""
    for text in canvas.findobj(Text):
        if "$" in text.get_text() and "mathdefault" not in text.get_text():
            text.set_parse_math(False)


def save(canvas: Figure, path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """Write a figure to PATH, which ends in .png, and its data to a JSON file of the same name. Each appears whole."""
    png = Path(path)
    if png.suffix != ".png":
        raise ArcmaskError(f"a figure is written as .png, but the name is {png.name}")
    content = io.BytesIO()
    disable_formulas(canvas)
    with styled():
        # Without the software's version, equal data give equal bytes.
        canvas.savefig(content, format="png", dpi=DPI, metadata={"Software": None})
    write_whole(png.with_suffix(".json"), json_bytes(dict(data)))
    write_whole(png, content.getvalue())
