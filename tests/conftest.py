"""Fixtures that every test may use. `operator_name` lists all operators: shared invariants run over each."""

import os

# Some virtual machines announce AMX and kill the process that runs it; set before torch first multiplies.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch
from hypothesis import settings

from arcmask.feedback import OPERATORS

pytest_plugins = ["prepared_fixtures"]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
torch.set_num_threads(2)


@pytest.fixture(params=sorted(OPERATORS), scope="session")
def operator_name(request: pytest.FixtureRequest) -> str:
    return request.param
