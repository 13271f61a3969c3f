"""Figures: whole files, the same bytes for the same data, and no trace in matplotlib's global state."""

import json
import subprocess
import sys

import matplotlib as mpl
import pytest
from matplotlib.image import imread

from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS
from arcmask.figures import COLOURS, colour, figure, panels, save, styled


@styled()
def draw():
    made, axes = figure(4, 3)
    axes.plot([0, 1], [1, 0], color=colour("linear"), label="down")
    axes.legend()
    return made


def test_a_figure_has_its_data_beside_it(tmp_path):
    save(draw(), tmp_path / "line.png", {"x": [0, 1], "y": [1, 0]})
    assert json.loads((tmp_path / "line.json").read_text()) == {"x": [0, 1], "y": [1, 0]}
    assert imread(tmp_path / "line.png").shape[:2] == (450, 600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["line.json", "line.png"]


def test_equal_data_give_equal_bytes(tmp_path):
    for name in ("a", "b"):
        save(draw(), tmp_path / f"{name}.png", {})
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_global_settings_are_left_alone(tmp_path):
    before = dict(mpl.rcParams)
    save(draw(), tmp_path / "a.png", {})
    assert dict(mpl.rcParams) == before


def test_pyplot_is_not_needed():
    code = "import sys, arcmask.figures; assert 'matplotlib.pyplot' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_panels_stand_side_by_side():
    made, axes = panels(8, 3, 2)
    assert len(axes) == 2
    assert made.axes == axes


def test_every_operator_has_a_colour_of_its_own():
    assert set(OPERATORS) == set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_an_arm_has_the_colour_of_its_operator():
    assert colour("spherical, fixed 0.3") == COLOURS["spherical"]
    assert colour("spherical-euclidean-k5") == COLOURS["spherical-euclidean"]
    assert colour("someone's own") == colour("someone's own")
    assert colour("someone's own") not in COLOURS.values()


def test_a_figure_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ArcmaskError, match=r"as \.png, but was given the name line\.pdf"):
        save(draw(), tmp_path / "line.pdf", {})


def test_without_matplotlib_one_sentence_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from arcmask.errors import ArcmaskError\n"
        "try: import arcmask.figures\n"
        "except ArcmaskError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "figures need matplotlib: pip install 'arcmask[report]'\n"
