"""Draw the loop of denoising with feedback: denoise, keep, feed back. The library's operators compute the paths."""

from typing import Any

import torch
from matplotlib.patches import Arc, FancyArrowPatch, FancyBboxPatch, Rectangle

from arcmask import figures
from arcmask.feedback import OPERATORS
from arcmask.figures import GRID, INK, MASK, MUTED, Axes
from arcmask.report.figure import Drawing

_WIDTH, _HEIGHT = 100.0, 70.0  # of the drawing, in its own units
_PAPER = "#ffffff"
# The sentence before and after the step (None is a mask), and the candidates of its masked positions.
_BEFORE = ("we", None, "the", None, None)
_AFTER = ("we", None, "the", "people", None)
_CANDIDATES = {
    1: (("are", 0.5), ("hold", 0.3), ("ask", 0.2)),
    3: (("people", 0.7), ("union", 0.2), ("law", 0.1)),
    4: (("of", 0.6), ("and", 0.3), ("in", 0.1)),
}
_WEIGHT = 0.35  # of the feedback that is drawn
_BOX, _GAP, _LEFT = 9.6, 1.6, 1.0  # width, distance and first position of the tokens
_RIGHT = _LEFT + 5 * _BOX + 4 * _GAP
_MIDDLE = (_LEFT + _RIGHT) / 2
_TOP, _BOTTOM = 57.0, 7.0  # of the two rows of tokens
_CENTRE, _RADIUS = (67.5, 14.0), 24.0  # of the circle
_TEXT: dict[str, Any] = {"va": "center", "color": INK, "fontsize": 8.5}
_TURN = {"mask": 104.0, "are": 0.0, "hold": 27.0, "ask": 46.0}  # degrees


def loop_figure() -> Drawing:
    """Return the drawing of the loop."""
    canvas, axes = figures.figure(6.8, 6.8 * _HEIGHT / _WIDTH)
    axes.set(xlim=(0, _WIDTH), ylim=(0, _HEIGHT), aspect="equal")
    axes.axis("off")
    with figures.styled():
        _draw_tokens(axes, _TOP, _BEFORE, is_soft=True)
        _draw_box(axes, _LEFT, 44, _RIGHT - _LEFT, 6.5, facecolor=GRID, edgecolor=INK)
        _write(axes, _MIDDLE, 47.2, "denoiser", fontsize=10.5, ha="center")
        _draw_candidates(axes, 35)
        _draw_tokens(axes, _BOTTOM, _AFTER, is_soft=False)
        _draw_sphere(axes)
        _draw_steps(axes)
    caption = (
        "One step of sampling with feedback. The denoiser predicts every masked position, and the sampling rule keeps "
        "some of the predictions. Without feedback all other predictions are lost, and their positions hold the plain "
        "mask again. With feedback, the embedding of such a position moves from the mask towards the mean of its "
        f"candidates, by the weight (here {_WEIGHT}): on a great circle (spherical) or on a straight line (linear)."
    )
    data = {"before": _BEFORE, "after": _AFTER, "weight": _WEIGHT, "candidates": _CANDIDATES}
    return Drawing("loop", "Denoise, keep, feed back", caption, canvas, data, wide=True)


def _draw_tokens(axes: Axes, y: float, tokens: tuple[str | None, ...], *, is_soft: bool) -> None:
    """Draw a row of tokens. A mask with feedback is filled as far as its weight."""
    for position, token in enumerate(tokens):
        x = _LEFT + position * (_BOX + _GAP)
        if is_soft and token is None:
            axes.add_patch(
                Rectangle((x + 0.2, y + 0.2), _WEIGHT * _BOX, 6, color=figures.colour("spherical"), alpha=0.3)
            )
        _draw_box(axes, x, y, _BOX, 6.4, facecolor="none", edgecolor=MUTED if token else MASK)
        _write(axes, x + _BOX / 2, y + 3.1, token or "mask", ha="center", color=INK if token else MASK)


def _draw_box(axes: Axes, x: float, y: float, width: float, height: float, **look: Any) -> None:
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=1", lw=1.2, **look))


def _draw_bar(axes: Axes, x: float, y: float, width: float, height: float) -> None:
    axes.add_patch(Rectangle((x, y), width, height, color=figures.colour("spherical"), alpha=0.3, lw=0))


def _write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    axes.text(x, y, text, **_TEXT | look)


def _draw_candidates(axes: Axes, top: float) -> None:
    """Draw the candidates of every masked position, with bars of their probabilities."""
    for position, candidates in _CANDIDATES.items():
        x = _LEFT + position * (_BOX + _GAP)
        for line, (text, share) in enumerate(candidates):
            y = top - 4.1 * line
            _draw_bar(axes, x, y - 1.6, _BOX * share, 3.2)
            _write(axes, x + 0.6, y, text)


def _draw_sphere(axes: Axes) -> None:
    """Draw the mask, the candidates of one position, and the paths of two operators between the mask and the mean."""
    centre, degrees = torch.tensor(_CENTRE), torch.tensor(list(_TURN.values()))
    points = _RADIUS * torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()], dim=1)
    probs = torch.tensor([[share for _, share in _CANDIDATES[1]]])
    axes.add_patch(Arc(_CENTRE, 2 * _RADIUS, 2 * _RADIUS, theta1=-10, theta2=112, ec=MUTED, lw=0.9, ls=(0, (3, 2))))
    weights = torch.linspace(0, 1, 41)
    for name in ("linear", "spherical"):
        inputs = points[0], points[1:].expand(41, -1, -1), probs.expand(41, -1), weights
        path = OPERATORS[name](*inputs) + centre
        axes.plot(*path.T.tolist(), color=figures.colour(name), lw=2.4)
        axes.plot(*path[round(40 * _WEIGHT)].tolist(), marker="o", ms=8, color=figures.colour(name), mec=_PAPER)
        axes.plot(*path[-1].tolist(), marker="D", ms=5, color=figures.colour(name), mec=_PAPER)
    axes.plot(*(points[0] + centre).tolist(), marker="s", ms=8, color=MASK, mec=_PAPER)
    for name, point in zip(_TURN, (points + centre).tolist(), strict=True):
        if name != "mask":
            axes.plot(*point, marker="o", ms=5.5, mfc=_PAPER, color=figures.colour("spherical"))
            _write(axes, point[0] + 1.8, point[1] + 0.6, name)
    x, y = (points[0] + centre).tolist()
    _write(axes, x - 1.5, y + 2.6, "mask", color=MASK, ha="right")
    _write(axes, 77, 38.5, "spherical", color=figures.colour("spherical"))
    _write(axes, 66, 25, "linear", color=figures.colour("linear"))
    _write(axes, 85.5, 18.5, "mean", ha="right")


def _draw_steps(axes: Axes) -> None:
    """Draw the arrows of the loop, and name its three steps."""
    for start, end in ((_TOP - 0.8, 51.3), (43.2, 39.2), (24, _BOTTOM + 7.4)):
        _draw_arrow(axes, (_MIDDLE, start), (_MIDDLE, end))
    _draw_arrow(axes, (_RIGHT + 1, _BOTTOM + 3), (70, 21), curve=0.35)
    _write(axes, _RIGHT + 3, _BOTTOM - 0.2, "still masked", color=MUTED)
    _draw_arrow(axes, (79, 43), (_RIGHT + 1.2, _TOP + 3.2), curve=0.25)
    _write(axes, _LEFT, _TOP + 9.5, "input of the step", color=MUTED)
    _write(axes, _LEFT, _BOTTOM - 3.5, "after the step", color=MUTED)
    for x, y, text in (
        (_MIDDLE + 1.6, 53.8, "1  denoise"),
        (_MIDDLE + 1.6, 19, "2  keep"),
        (74.5, 55.5, "3  feed back"),
    ):
        _write(axes, x, y, text, weight="bold", fontsize=10)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], curve: float = 0.0) -> None:
    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "lw": 1.4, "color": MUTED, "shrinkA": 0}
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={curve}", shrinkB=0, **look))
