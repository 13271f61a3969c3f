"""Draw docs/figures/loop.png: `python docs/figures/loop.py`. It is the figure of the report."""

from pathlib import Path

from arcmask.report.loop import loop_figure

if __name__ == "__main__":
    loop_figure().figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)
