"""One of each kind of folder that arcmask writes, made by its commands."""

import shutil
import signal

import pytest
from forks import Outcome
from world import PIECES, World


@pytest.fixture(scope="session")
def world(tmp_path_factory, corpus, base, forks) -> World:
    world = World(tmp_path_factory.mktemp("world"), corpus, base)

    folder = world.folder

    def run(words: list[str]) -> Outcome:
        outcome = forks.run(words, folder, is_blank=True)
        assert outcome.code == 0, outcome.stderr
        return outcome

    run(world.train("run"))
    shutil.rmtree(folder / "run" / "checkpoints" / "step-0000004")  # so that there is something left to train
    run(["convert", world.run, "fed"])
    run(["convert", world.run, "fed.ckpt"])
    run(world.sample(world.fed, "samples.jsonl"))
    run(world.evaluate(world.samples, "scores.json"))
    run(world.reproduce("experiment"))
    killed = forks.run(world.prepare("killed", *PIECES), folder, kill_at=25)
    assert killed.code == -signal.SIGKILL
    return world
