"""`arcmask prepare`: tokenise a corpus into rows that training reads."""

from pathlib import Path

from arcmask.data import prepare
from arcmask.data.packing import describe_job
from arcmask.data.prepared import verify
from arcmask.settings.prepare import PrepareConfig


def run(config: PrepareConfig) -> None:
    """Prepare the corpus, or what is left of it, and print what was written; or verify what was written before."""
    if config.verify:
        print(f"verified {verify(Path(config.out).expanduser())} files")
        return
    print("\n".join([*prepare(config).describe(), config.out]))


def dry_run(config: PrepareConfig) -> None:
    """Print what would be done."""
    print(describe_job(config))
