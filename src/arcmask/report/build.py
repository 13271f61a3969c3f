"""`arcmask report`: from run folders to report.html with its tables and figures beside it."""

import os
from collections.abc import Sequence
from pathlib import Path

from arcmask import __version__
from arcmask.errors import ArcmaskError
from arcmask.files import json_bytes, write_whole, written_whole
from arcmask.report.across import comparison_chapter
from arcmask.report.chapters import experiment_chapter, training_chapter
from arcmask.report.document import Chapter, Picture
from arcmask.report.folder import Experiment, open_run
from arcmask.report.page import render

PAGE, TABLES, FIGURES = "report.html", "tables", "figures"


def build_report(folders: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the report of these runs; returns the path of its page.

    By default the report of one run lies in its folder `report`, that of several in `report` where one is.
    """
    if not folders:
        raise ArcmaskError("a report needs at least one run")
    paths = [Path(folder) for folder in folders]
    runs = {name: open_run(path) for name, path in zip(_names(paths), paths, strict=True)}
    target = Path(out) if out is not None else (paths[0] / "report" if len(paths) == 1 else Path("report"))
    _check_writable(target)
    chapters = [
        experiment_chapter(run, name) if isinstance(run, Experiment) else training_chapter(run, name)
        for name, run in runs.items()
    ]
    experiments = {name: run for name, run in runs.items() if isinstance(run, Experiment)}
    if len(experiments) > 1:
        chapters.insert(0, comparison_chapter(experiments))
    title = chapters[0].title if len(chapters) == 1 else f"Report of {len(runs)} runs"
    page = render(title, chapters, __version__)
    _write(target, chapters, page)
    return target / PAGE


def _check_writable(target: Path) -> None:
    """By all that can be seen without writing, and before anything is drawn."""
    nearest = next(place for place in (target, *target.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ArcmaskError(f"cannot write to {target}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise ArcmaskError(f"cannot write to {target}: {nearest} does not allow it")


def _names(paths: list[Path]) -> list[str]:
    """A name for each run, fit for a link and a file; the folder's, and numbered where two are the same."""
    found: list[str] = []
    for path in paths:
        plain = (
            "".join(letter if letter.isalnum() else "-" for letter in path.resolve().name.lower()).strip("-") or "run"
        )
        name, number = plain, 2
        while name in found:
            name, number = f"{plain}-{number}", number + 1
        found.append(name)
    return found


def _write(target: Path, chapters: list[Chapter], page: str) -> None:
    """Tables and figures first, the page last: one that is there is complete."""
    several = len(chapters) > 1
    with written_whole(target / TABLES) as scratch:
        for chapter in chapters:
            for table in chapter.tables():
                name = f"{chapter.name}-{table.name}" if several else table.name
                (scratch / f"{name}.md").write_text(table.markdown())
                (scratch / f"{name}.tex").write_text(table.latex())
                (scratch / f"{name}.json").write_bytes(table.json())
    with written_whole(target / FIGURES) as scratch:
        for chapter in chapters:
            for figure in chapter.figures():
                name = f"{chapter.name}-{figure.name}" if several else figure.name
                if isinstance(figure, Picture):
                    (scratch / f"{name}.png").write_bytes(figure.png)
                    (scratch / f"{name}.json").write_bytes(json_bytes(figure.data))
                else:
                    figure.save(scratch / f"{name}.png")
    try:
        write_whole(target / PAGE, page.encode())
    except OSError as error:
        raise ArcmaskError(f"{target / PAGE} could not be written: {error.strerror}") from error
