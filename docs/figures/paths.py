"""Draws docs/figures/paths.png: `python docs/figures/paths.py`. Every curve is computed by the library's operators."""

import math
from pathlib import Path

from arcmask.diagnostics import sphere_paths
from arcmask.diagnostics.drawing import draw_sphere

DEGREES = 115  # wider than the 73 that the paper measures, so that the difference can be seen

if __name__ == "__main__":
    draw_sphere(sphere_paths(math.radians(DEGREES))).savefig(Path(__file__).with_suffix(".png"), dpi=150)
