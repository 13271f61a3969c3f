"""The settings of `arcmask report`. Imports nothing heavy: it is read for `--help`."""

from dataclasses import dataclass

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What to report on, and where to.

    Args:
        runs: Folders of `arcmask reproduce` or of `arcmask train`.
        out: The folder to write report.html, tables/ and figures/ into. By default RUN/report; report for several runs.
    """

    runs: tuple[str, ...] = ()
    out: str | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise ArcmaskError("a report needs at least one run, a folder of arcmask reproduce or arcmask train")
