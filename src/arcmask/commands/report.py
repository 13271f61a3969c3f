"""`arcmask report`: show the results of runs as one page with tables and figures."""

from arcmask.report import build_report
from arcmask.settings.report import ReportConfig


def run(config: ReportConfig) -> None:
    """Build the report and print the path of its page."""
    print(build_report(config.runs, config.out))
