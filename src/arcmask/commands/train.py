"""`arcmask train`: train a model, by a recipe or by settings of one's own, or resume it."""

import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path

from arcmask.checkpoint import find_checkpoint, load
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import prepare
from arcmask.data.job import rows_to_come
from arcmask.data.packing import describe_job
from arcmask.data.prepared import is_prepared
from arcmask.downloads import NotFetchedError, offline, to_fetch
from arcmask.errors import ArcmaskError
from arcmask.progress import announce
from arcmask.ranks import rank
from arcmask.recipes import find_recipe
from arcmask.run_folder import METRICS, interpreting, read_metrics
from arcmask.settings.cards import refuse_card
from arcmask.settings.prepare import PrepareConfig
from arcmask.settings.train import TrainCommand
from arcmask.training import train
from arcmask.training.checks import check_settings, most_ranks
from arcmask.training.dry_run import describe_training
from arcmask.training.metrics import describe_result


def run(command: TrainCommand) -> None:
    """Prepare the recipe's data if it is missing, train, say what was reached, and print the last checkpoint's path."""
    refuse_card(command.card)
    data = _check(command)
    if data is not None:
        prepare(data)
    checkpoint = train(command.train, command.folder)
    if rank() == 0:
        with interpreting(Path(command.folder) / METRICS, "the metrics of a training run"):
            announce(describe_result(read_metrics(command.folder)))
        name = shlex.quote(command.folder)
        announce(f"next: arcmask sample {name}, or arcmask report {name}")
        print(checkpoint)


def dry_run(command: TrainCommand) -> None:
    """Print the size of the run and what it would take. Nothing is fetched or written."""
    init = command.train.init
    missing = [] if init.startswith("new:") else to_fetch(partial(find_checkpoint, init))
    with offline():
        data = _check(command)
        if data is not None and not is_prepared(data.out):
            print(f"first: {describe_job(data)}; then train {command.folder}")
        print(describe_training(command.train, Path(command.folder), data, command.card))
    if missing:
        print(f"to fetch: {missing[0]}")


def most_processes(command: TrainCommand, most: int) -> tuple[int, str]:
    """Return how many of `most` processes can share the batch, and why it is not more."""
    return most_ranks([command.train], most)


def _check(command: TrainCommand) -> PrepareConfig | None:
    """Check what needs no data, and return how to prepare the data, unless the user named another folder."""
    if not command.resume and Path(command.folder).exists():
        raise ArcmaskError(f"the run {command.folder} exists already, and resume is false; give another name")
    check_settings(command.train, Path(command.folder))
    recipe = None if command.recipe is None else find_recipe(command.recipe)
    if recipe is None or recipe.prepare is None or command.train.data != recipe.prepare.out:
        return None
    init = command.train.init
    if init != recipe.train.init and not init.startswith("new:") and not is_prepared(recipe.prepare.out):
        form = rows_to_come(recipe.prepare)
        if form is not None:  # before the data are prepared, which can take hours
            with suppress(NotFetchedError):  # in a dry run
                check_corpus(form, load(init))
    return recipe.prepare
