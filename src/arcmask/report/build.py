"""Build a report from run folders: report.html, and its tables and figures as files."""

import re
from collections.abc import Sequence
from pathlib import Path

from arcmask import __version__
from arcmask.errors import ArcmaskError
from arcmask.files import writable, write_whole, written_whole
from arcmask.report.across import comparison_chapter
from arcmask.report.chapters import experiment_chapter
from arcmask.report.document import Chapter
from arcmask.report.folder import Experiment, Training, read_run
from arcmask.report.page import render
from arcmask.report.trainings import overlay_chapter, training_chapter
from arcmask.report.wording import slug
from arcmask.run_folder import check_output, interpreting

PAGE, TABLES, FIGURES = "report.html", "tables", "figures"


def build_report(folders: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the report of one or more runs, and return the path of its page.

    The default of `out` is RUN/report for one run, and report in the current folder for several.
    """
    if not folders:
        raise ArcmaskError("a report needs at least one run")
    paths = [Path(folder) for folder in folders]
    runs = {name: read_run(path) for name, path in zip(_names(paths), paths, strict=True)}
    target = _target(paths, out)
    writable(target / PAGE)
    chapters = [_chapter(run, name) for name, run in runs.items()]
    experiments = {name: run for name, run in runs.items() if isinstance(run, Experiment)}
    trainings = {name: run for name, run in runs.items() if isinstance(run, Training)}
    if len(trainings) > 1:
        chapters.insert(0, overlay_chapter(trainings))
    if len(experiments) > 1:
        chapters.insert(0, comparison_chapter(experiments))
    title = chapters[0].title if len(chapters) == 1 else f"Report of {len(runs)} runs"
    page = render(title, chapters, __version__, " ".join(runs))
    _write(target, chapters, page)
    return target / PAGE


def check_report(
    folders: Sequence[str | Path], out: str | Path | None = None, *, overwrite: bool = False
) -> str | None:
    """Raise unless a report may be written. Return a sentence about the page that is replaced, if there is one.

    A page in the folder of its own run is always replaced, any other only if it is of the same runs.
    """
    paths = [Path(folder) for folder in folders]
    page = _target(paths, out) / PAGE
    if page.is_file() and page.resolve().is_relative_to(paths[0].resolve()) and len(paths) == 1:
        return f"{page} is replaced"
    return check_output(page, {"runs": " ".join(_names(paths))}, _stored_runs, overwrite=overwrite)


def _stored_runs(page: Path) -> dict[str, str] | None:
    """Return the names of the runs that a page is about; None if it is not a report."""
    match = re.search('<meta name="runs" content="([^"]*)">', page.read_text(encoding="utf-8", errors="replace"))
    return None if match is None else {"runs": match[1]}


def _target(paths: list[Path], out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    return paths[0] / "report" if len(paths) == 1 else Path("report")


def _chapter(run: Experiment | Training, name: str) -> Chapter:
    with interpreting(run.folder, "results that can be reported"):
        return experiment_chapter(run, name) if isinstance(run, Experiment) else training_chapter(run, name)


def _names(paths: list[Path]) -> list[str]:
    """Return a unique name for each run, from its folder's name, for links and files."""
    names: list[str] = []
    for path in paths:
        plain = name = slug(path.resolve().name) or "run"
        number = 2
        while name in names:
            name, number = f"{plain}-{number}", number + 1
        names.append(name)
    return names


def _write(target: Path, chapters: list[Chapter], page: str) -> None:
    """Write tables and figures first and the page last, so that an existing page is complete."""
    prefixes = [f"{chapter.name}-" if len(chapters) > 1 else "" for chapter in chapters]
    tables = [(prefix, table) for prefix, chapter in zip(prefixes, chapters, strict=True) for table in chapter.tables()]
    drawings = [
        (prefix, item) for prefix, chapter in zip(prefixes, chapters, strict=True) for item in chapter.figures()
    ]
    if tables:
        with written_whole(target / TABLES) as scratch:
            for prefix, table in tables:
                for kind, text in (("md", table.markdown()), ("tex", table.latex())):
                    (scratch / f"{prefix}{table.name}.{kind}").write_bytes(text.encode(errors="backslashreplace"))
                (scratch / f"{prefix}{table.name}.json").write_bytes(table.json())
    if drawings:
        with written_whole(target / FIGURES) as scratch:
            for prefix, figure in drawings:
                figure.save(scratch / f"{prefix}{figure.name}.png")
    target.mkdir(parents=True, exist_ok=True)
    write_whole(target / PAGE, page.encode(errors="backslashreplace"))
