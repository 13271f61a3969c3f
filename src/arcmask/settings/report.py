"""The settings of `arcmask report`."""

from dataclasses import dataclass, field

from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Which runs to report on, and where to write.

    Args:
        runs: Folders of `arcmask reproduce` or `arcmask train`.
        out: The folder for report.html, tables/ and figures/. Default: RUN/report, or report for several runs. A report
            of the same runs is replaced.
        overwrite: Replace any report.html.
    """

    runs: tuple[str, ...] = ()
    out: str | None = None
    overwrite: bool = field(default=False, metadata={"flag": True})

    def __post_init__(self) -> None:
        if not self.runs:
            raise ArcmaskError("a report needs at least one run, a folder of arcmask reproduce or arcmask train")
