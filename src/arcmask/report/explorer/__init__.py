"""The explorer: a self-contained page that shows step by step how several arms generate a sample."""

from arcmask.report.explorer.trace_page import build_page, check_page, write_page
from arcmask.settings.explore import ExploreConfig

__all__ = ["ExploreConfig", "build_page", "check_page", "write_page"]
