"""`arcmask report`: show the results of runs as one page with tables and figures."""

from arcmask.progress import announce
from arcmask.report import build_report, check_report
from arcmask.settings.report import ReportConfig


def run(config: ReportConfig) -> None:
    """Build the report and print the path of its page."""
    notice = check_report(config.runs, config.out, overwrite=config.overwrite)
    page = build_report(config.runs, config.out)
    if notice:
        announce(notice)
    print(page)
