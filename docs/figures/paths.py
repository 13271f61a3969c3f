"""Draws docs/figures/paths.png: `python docs/figures/paths.py`. Every curve is computed by the library's operators."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from arcmask import sphere
from arcmask.feedback import OPERATORS

mpl.use("agg")
import matplotlib.pyplot as plt

COLOURS = {"linear": "#d1495b", "renormalized": "#edae49", "spherical": "#00798c"}
ANGLE = np.deg2rad(115)  # wider than the 73 degrees that the paper measures, so that the difference can be seen


def paths() -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Weights (N,), and for each operator its path (N, 3) from a mask to one candidate on the unit sphere."""
    weight = torch.linspace(0, 1, 121, dtype=torch.float64)
    mask = sphere.unit(torch.tensor([0.75, -0.55, -0.1], dtype=torch.float64))
    across = sphere.unit(torch.linalg.cross(torch.linalg.cross(mask, torch.tensor([0.1, 0.45, 1.0]).double()), mask))
    target = np.cos(ANGLE) * mask + np.sin(ANGLE) * across
    candidates, probs = target.expand(len(weight), 1, 3), torch.ones(len(weight), 1, dtype=torch.float64)
    return weight, mask, {name: OPERATORS[name](mask, candidates, probs, weight) for name in COLOURS}


def draw_sphere(axes: plt.Axes, path: dict[str, torch.Tensor]) -> None:
    """The sphere, the chord and the arc, with equal steps of the weight marked."""
    u, v = np.mgrid[0 : 2 * np.pi : 60j, 0 : np.pi : 30j]
    axes.plot_surface(np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v), color="#9db4c0", alpha=0.13, linewidth=0)
    axes.plot_wireframe(
        np.cos(u) * np.sin(v),
        np.sin(u) * np.sin(v),
        np.cos(v),
        color="#5c6b73",
        alpha=0.12,
        rcount=9,
        ccount=13,
        lw=0.6,
    )
    for name in ("linear", "spherical"):
        axes.plot(*path[name].T, color=COLOURS[name], lw=2.6, zorder=5)
        axes.scatter(*path[name][::20].T, color=COLOURS[name], s=22, depthshade=False, zorder=6)
    ends = path["spherical"][[0, -1]]
    axes.scatter(*ends.T, color="#253237", s=60, depthshade=False, zorder=7)
    for point, label, side in zip(ends, ("[MASK]  ", "  predicted mean"), ("right", "left"), strict=True):
        axes.text(*(1.04 * point), label, color="#253237", fontsize=11, ha=side, va="center", zorder=8)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.5)
    axes.view_init(elev=18, azim=10)


def main() -> None:
    """Write the figure beside this file."""
    weight, mask, path = paths()
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(11, 4.2), dpi=160)
    draw_sphere(figure.add_axes((-0.01, -0.12, 0.56, 1.24), projection="3d"), path)
    grid = figure.add_gridspec(2, 1, left=0.57, right=0.985, top=0.93, bottom=0.12, hspace=0.42)
    norm, pace = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    for name, points in path.items():
        style = {"color": COLOURS[name], "lw": 2.2, "label": name}
        if name == "renormalized":  # it lies on another curve in both plots
            style |= {"ls": (0, (4, 3)), "zorder": 3}
        norm.plot(weight, points.norm(dim=-1), **style)
        pace.plot(weight, sphere.angle(mask, points).rad2deg(), **style)
    norm.set(ylim=(0.45, 1.08), title="norm along the path / norm of the mask")
    pace.set(xlabel="weight", title="angle turned away from the mask, degrees", yticks=[0, 30, 60, 90, 115])
    pace.legend(frameon=False, loc="lower right", fontsize=9)
    for axes in (norm, pace):
        axes.title.set_size(10)
        axes.set_xlim(0, 1)
    figure.savefig(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
