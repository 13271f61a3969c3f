"""`arcmask reproduce`: carry out an experiment (arms, seeds, budgets) and report it."""

import shlex
import sys

from rich.console import Console

from arcmask.experiment import describe, reproduce
from arcmask.ranks import rank
from arcmask.recipes import add_operators, find_experiment, plan_to_yaml
from arcmask.report import build_report, terminal_table
from arcmask.settings.cards import refuse_card
from arcmask.settings.experiment import Plan, ReproduceCommand
from arcmask.training.checks import most_ranks


def run(command: ReproduceCommand) -> None:
    """Carry out the experiment, print its tables and the path of the report."""
    refuse_card(command.card)
    folder = reproduce(_plan(command), command.run, command=shlex.join(["arcmask", *sys.argv[1:]]))
    if rank() == 0:
        report = build_report([folder], None)
        Console().print(terminal_table(folder))
        print(report)


def dry_run(command: ReproduceCommand) -> None:
    """Print the plan and what it would take."""
    print(describe(_plan(command), command.run, command.card))


def most_processes(command: ReproduceCommand, most: int) -> tuple[int, str]:
    """Return how many of `most` processes can share the batches of all trained arms, and why it is not more."""
    return most_ranks(_plan(command).trainings, most)


def print_config(command: ReproduceCommand) -> None:
    """Print the plan as a file that `--config` reads."""
    print(plan_to_yaml(_plan(command)), end="")


def _plan(command: ReproduceCommand) -> Plan:
    plan = command.changes.apply(find_experiment(command.recipe))
    command.changes.refuse_unused(plan)
    return add_operators(plan, command.changes.operators or ())
