"""Two torchrun agents with two ranks each, as on two machines with a shared folder; one is killed and returns."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_process import command, finish, outcome

STEPS = 60


def start_agent(words: list[str], port: int, log: Path) -> subprocess.Popen:
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-endpoint", f"localhost:{port}"]
    options = ["--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "5", "--local-addr", "localhost"]
    # An agent that is gone is noticed after three heartbeats, which are 5 s apart by default.
    options += ["--rdzv-conf", "keep_alive_interval=1,last_call_timeout=2"]
    launch = ["-m", "torch.distributed.run", *rendezvous, *options, "-m", "--", "arcmask"]
    with log.open("a") as file:
        # Without the second one, torch 2.13 does not tell an agent that has come back where the first rank is.
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return subprocess.Popen([sys.executable, *launch, *words], stdout=file, stderr=file, env=environment)


def wait_for_steps(run: Path, count: int, agents: list[subprocess.Popen]) -> None:
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not metrics.exists() or len(metrics.read_bytes().splitlines()) < count:
        assert all(agent.poll() is None for agent in agents), "an agent has ended"
        assert time.monotonic() < deadline, "there is no progress"
        time.sleep(0.02)


@pytest.mark.slow
def test_an_agent_that_is_killed_comes_back_and_the_run_ends_as_if_nothing_had_happened(config, forks, tmp_path):
    config = replace(config, steps=STEPS, dropout=0.0, save_every=2, validate_every=20, micro_batch=2)
    finish(forks, config, tmp_path / "unbroken")
    run, log = tmp_path / "run", tmp_path / "log.txt"
    words = command(config, run)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    first = start_agent(words, port, log)  # it holds the rendezvous, so that this one must stay
    time.sleep(3)
    second = start_agent(words, port, log)
    try:
        wait_for_steps(run, 5, [first, second])
        second.send_signal(signal.SIGKILL)
        second.wait()
        second = start_agent(words, port, log)
        codes = [agent.wait(timeout=500) for agent in (first, second)]
        assert codes == [0, 0], log.read_text()[-3000:]
    finally:
        for agent in (first, second):
            agent.kill()
    found, expected = outcome(run, STEPS), outcome(tmp_path / "unbroken", STEPS)
    assert json.loads((run / "checkpoints" / f"step-{STEPS:07d}" / "trainer.json").read_text())["ranks"] == 4
    # Four ranks and one round differently: 1e-15 in most runs, and up to 4e-10 where a step with feedback amplifies it.
    for name, tensor in expected[0].items():
        torch.testing.assert_close(found[0][name], tensor, rtol=0, atol=1e-8, msg=name)
    assert [record["step"] for record in found[2]] == list(range(1, STEPS + 1))
    for one, two in zip(found[2], expected[2], strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-8)
