"""The report: tables, figures and one HTML page from run folders."""

from arcmask.report.build import build_report, check_report
from arcmask.report.terminal import terminal_table
from arcmask.settings.report import ReportConfig

__all__ = ["ReportConfig", "build_report", "check_report", "terminal_table"]
