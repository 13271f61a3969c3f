"""The explorer: one self-contained page that shows how a sample forms, step by step, in several arms."""

from arcmask.report.explorer.page import build_page, write_page
from arcmask.settings.explore import ExploreConfig

__all__ = ["ExploreConfig", "build_page", "write_page"]
