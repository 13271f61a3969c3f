"""`arcmask inspect`: measure the geometry of a checkpoint."""

from arcmask.diagnostics import inspect
from arcmask.progress import announce
from arcmask.settings.inspect import InspectConfig


def run(config: InspectConfig) -> None:
    """Run the diagnostics, and print a sentence for each and the folder."""
    if (config.folder / "inspect.json").is_file():
        announce(f"{config.folder} holds an earlier inspection; it is replaced")
    inspection = inspect(config)
    lines = [f"{name}: {reading}" for name, reading in inspection.readings.items()]
    print("\n".join([*lines, *inspection.left_out, str(inspection.folder)]))
