"""`arcmask convert`: write a checkpoint in another form."""

from dataclasses import asdict

from arcmask.checkpoint import convert
from arcmask.settings.convert import ConvertConfig


def run(config: ConvertConfig) -> None:
    """Convert the checkpoint and print the path."""
    print(convert(**asdict(config)))
