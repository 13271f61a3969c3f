"""`arcmask convert`: write a checkpoint in another form."""

from arcmask.checkpoint import convert
from arcmask.settings.convert import ConvertConfig


def run(config: ConvertConfig) -> None:
    """Convert the checkpoint and print the path."""
    print(convert(config.source, config.target, weights=config.weights, mask_id=config.mask_id, dtype=config.dtype))
