"""Draw docs/figures/paths.png: `python docs/figures/paths.py`. The library's operators compute every curve."""

import math
from pathlib import Path

from arcmask.diagnostics import sphere_paths
from arcmask.diagnostics.drawing import draw

DEGREES = 115  # wider than the 73 that the paper measures, so that the difference is visible

if __name__ == "__main__":
    draw(sphere_paths(math.radians(DEGREES))).savefig(Path(__file__).with_suffix(".png"), dpi=150)
