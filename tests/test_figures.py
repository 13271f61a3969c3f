"""Figures: whole files, the same bytes for the same data, and no trace in matplotlib's global state."""

import json
import subprocess
import sys

import matplotlib as mpl
import pytest
from matplotlib.image import imread

from arcmask.errors import ArcmaskError
from arcmask.feedback import OPERATORS
from arcmask.figures import colour, figure, panels, save, styled
from arcmask.report.figure import looks
from arcmask.report.folder import Arm


@styled()
def draw():
    canvas, axes = figure(4, 3)
    axes.plot([0, 1], [1, 0], color=colour("linear"), label="down")
    axes.legend()
    return canvas


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
    canvas, axes = panels(8, 3, 2)
    assert len(axes) == 2
    assert canvas.axes == axes


def test_every_operator_has_a_colour_of_its_own():
    colours = {name: colour(name) for name in OPERATORS}
    assert colours == {name: record.colour for name, record in OPERATORS.items()}
    assert len(set(colours.values())) == len(colours)
    assert colour("someone's own") == colour("someone's own")
    assert colour("someone's own") not in colours.values()


def test_an_arm_has_its_own_colour_or_that_of_its_operator():
    arms = [
        Arm("spherical, fixed 0.3", "fixed", {"operator": "spherical", "fixed_weight": 0.3}),
        Arm("spherical-euclidean-k5", "five", {"operator": "spherical-euclidean"}),
        Arm("mine", "mine", {"operator": "mine.py:nearest"}, colour="#123456"),
        Arm("other", "other", {"operator": "mine.py:other"}),
        Arm("spherical", "learned", {"operator": "spherical"}),
    ]
    style = looks(arms)
    assert [look.colour for look in style.values()] == [
        colour("spherical"),
        colour("spherical-euclidean"),
        "#123456",
        colour("other"),
        colour("spherical"),
    ]
    assert len({(look.colour, look.dashes) for look in style.values()}) == len(arms)
    assert len({look.marker for look in style.values()}) == len(arms)


def test_a_figure_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ArcmaskError, match=r"as \.png, but the name is line\.pdf"):
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
