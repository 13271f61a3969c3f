"""The settings of `arcmask report`."""

from dataclasses import dataclass

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Which runs to report on, and where to write.

    Args:
        runs: Folders of `arcmask reproduce` or `arcmask train`.
        out: The folder for report.html, tables/ and figures/. Default: RUN/report, or report for several runs.
    """

    runs: tuple[str, ...] = ()
    out: str | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise ArcmaskError("a report needs at least one run, a folder of arcmask reproduce or arcmask train")
