"""Files that appear whole or not at all, and their hashes. Knows bytes and paths, nothing of what is in them."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError

# What a killed run can leave behind; nothing else in the package has such a name.
UNFINISHED = ".tmp"
LAST = "config.json"  # what a reader opens first is put in place last


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, rename."""
    beside = path.with_name(path.name + UNFINISHED)
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush(path.parent)


def writable(path: Path) -> Path:
    """The path of a file that can be written, by all that can be seen without writing."""
    if path.exists() and not path.is_file():
        raise ArcmaskError(f"cannot write to {path}: it is not a regular file")
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not path.exists() and not nearest.is_dir():
        raise ArcmaskError(f"cannot write to {path}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise ArcmaskError(f"cannot write to {path}: {nearest} does not allow it")
    return path


def flush(path: Path) -> None:
    """Have a file's content, or the names in a folder, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed runs left in the folder."""
    for path in folder.glob("*" + UNFINISHED):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def json_bytes(value: Any) -> bytes:
    """The one way in which we write JSON: equal values give equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> "hashlib._Hash":
    """The running SHA-256 of a file so far; what is appended to the file can be added to it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def is_full_disk(error: BaseException) -> bool:
    """Whether an error, of whatever kind, is the system's word that there is no space left."""
    return getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)


@contextmanager
def written_whole(folder: Path, replaces: tuple[str, ...] = ()) -> Iterator[Path]:
    """A scratch folder to write into; on leaving, its files are moved into `folder`. On an error nothing is.

    Files that match `replaces` and were not written anew are removed: they belong to what was there before.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    except OSError as error:
        raise ArcmaskError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield scratch
        written = sorted(scratch.iterdir(), key=lambda file: file.name == LAST)
        for file in written:
            file.chmod(0o666 & ~_umask())  # some writers keep their files to their user
            flush(file)
        for pattern in replaces:
            for old in folder.glob(pattern):
                if old.name not in {file.name for file in written}:
                    old.unlink()
        for file in written:
            file.replace(folder / file.name)
    except Exception as error:
        # torch and safetensors report a full disk as errors of their own, with the system's words in them.
        if is_full_disk(error):
            raise ArcmaskError(f"{folder} could not be written: the disk is full") from error
        if isinstance(error, OSError):
            raise ArcmaskError(f"{folder} could not be written: {error}") from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
