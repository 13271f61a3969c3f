"""Fixtures that every test may use. `operator_name` lists all operators: shared invariants run over each."""

import os
from collections.abc import Iterator

# Some virtual machines announce AMX and kill the process that runs it; set before torch first multiplies.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Parallel test processes share the cores: one thread for each of them and for what they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import socket

import pytest
import torch
from forks import Forks
from hypothesis import settings

from arcmask.feedback import OPERATORS

pytest_plugins = ["blank_figures", "chains", "prepared_fixtures"]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU; the tests marked gpu need one")


@pytest.fixture(params=sorted(OPERATORS), scope="session")
def operator_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make every attempt to reach another machine fail the test, and give the test an empty cache of hub files."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the network was touched")  # not an Exception, so that no library takes it for a failed request

    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that runs commands in forks of itself, which saves the seconds that a new process needs for imports."""
    process = Forks()
    yield process
    process.close()
