"""Writing a model's folder so that every file in it is whole or not there."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from arcmask.errors import ArcmaskError

LAST = "config.json"  # what a reader opens first is put in place last


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A scratch folder to write into; on leaving, its files are moved into `folder`. On an error nothing is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    except OSError as error:
        raise ArcmaskError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield scratch
        for file in sorted(scratch.iterdir(), key=lambda file: file.name == LAST):
            with file.open("rb") as written:
                os.fsync(written.fileno())
            file.replace(folder / file.name)
    except (OSError, RuntimeError, SafetensorError) as error:
        # torch and safetensors report a full disk as errors of their own, with the system's words in them.
        full = getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)
        reason = "the disk is full" if full else str(error)
        raise ArcmaskError(f"{folder} could not be written: {reason}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
