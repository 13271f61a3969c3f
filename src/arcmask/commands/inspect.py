"""`arcmask inspect`: measure what feedback would gain in a checkpoint, and its geometry."""

from arcmask.diagnostics import inspect
from arcmask.progress import announce
from arcmask.settings.inspect import InspectConfig


def run(config: InspectConfig) -> None:
    """Run the diagnostics, and print a sentence for each and the folder."""
    had_one = (config.folder / "inspect.json").is_file()
    inspection = inspect(config)
    if had_one:
        announce(f"the earlier inspection in {config.folder} is replaced")
    lines = [f"{name}: {reading}" for name, reading in inspection.readings.items()]
    print("\n".join([*lines, *inspection.left_out, str(inspection.folder)]))
