"""Fixtures: a finished experiment and its report."""

from pathlib import Path

import pytest
from made_up import make_experiment

from arcmask.report import build_report


@pytest.fixture(scope="session")
def experiment_folder(tmp_path_factory) -> Path:
    return make_experiment(tmp_path_factory.mktemp("runs") / "made-up")


@pytest.fixture(scope="session")
def page(experiment_folder, tmp_path_factory) -> Path:
    """The report's page, written elsewhere than in the run."""
    return build_report([experiment_folder], tmp_path_factory.mktemp("reports") / "report")
