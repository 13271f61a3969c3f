"""Blank figures for tests that are not about them: drawing is most of the time of a small experiment or report."""

import base64
from collections.abc import Iterator
from typing import IO, Any

import pytest
from matplotlib.figure import Figure

from arcmask import figures

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg==")
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"></svg>'


def leave_blank(patch: pytest.MonkeyPatch) -> None:
    """Compose figures as always, with their data and captions, but write an empty picture in place of each."""

    def save(_: Figure, target: IO[Any], format: str, **__: Any) -> None:  # noqa: A002
        target.write(PNG if format == "png" else SVG)

    patch.setattr(Figure, "savefig", save)
    patch.setattr(figures, "disable_formulas", lambda _: None)


@pytest.fixture(scope="module")
def blank_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        leave_blank(patch)
        yield
