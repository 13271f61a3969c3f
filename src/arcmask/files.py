"""Write files that appear whole or not at all, and hash them. The module knows bytes and paths, not their meaning."""

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

UNFINISHED = ".tmp"  # the ending of files and folders that are being written; a killed process can leave one behind
LAST = ("config.json", "inspect.json")  # these say that a folder is complete, so they are moved into place last


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, flush it to the disk, and rename it."""
    beside = path.with_name(path.name + UNFINISHED)
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush(path.parent)


def writable(path: Path, *, is_folder: bool = False) -> Path:
    """Return the path of a file or a folder, or raise if it cannot be written. Nothing is written to find out."""
    if not is_folder and path.exists() and not path.is_file():
        raise ArcmaskError(f"cannot write to {path}: it is not a regular file")
    nearest = nearest_folder(path)
    if (is_folder or nearest != path) and not nearest.is_dir():
        raise ArcmaskError(f"cannot write to {path}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise ArcmaskError(f"cannot write to {path}: {nearest} does not allow it")
    return path


def nearest_folder(path: Path) -> Path:
    """Return the path itself if it exists, or the nearest folder above it that does."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_unfinished(folder: Path) -> None:
    """Remove the unfinished files and folders that killed processes left in a folder."""
    for path in folder.glob("*" + UNFINISHED):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def json_bytes(value: Any) -> bytes:
    """Format a value as JSON. Equal values give equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes as text."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> "hashlib._Hash":
    """Return the SHA-256 of a file; it can be updated with what is appended to the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error means that the disk is full. torch and safetensors have error types of their own."""
    return getattr(error, "errno", None) == errno.ENOSPC or os.strerror(errno.ENOSPC) in str(error)


@contextmanager
def written_whole(folder: Path, replaces: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield a scratch folder. On leaving, its files are moved into `folder`; after an error, nothing is moved.

    Old files in `folder` that match `replaces` and were not written again are removed.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    except OSError as error:
        raise ArcmaskError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield scratch
        written = sorted(scratch.iterdir(), key=lambda file: file.name in LAST)
        for file in written:
            file.chmod(0o666 & ~_umask())  # some writers make files that only their user can read
            flush(file)
        for pattern in replaces:
            for old in folder.glob(pattern):
                if old.name not in {file.name for file in written}:
                    old.unlink()
        for file in written:
            file.replace(folder / file.name)
    except Exception as error:
        if is_full_disk(error):
            raise ArcmaskError(f"{folder} could not be written: the disk is full") from error
        if isinstance(error, OSError):
            raise ArcmaskError(f"{folder} could not be written: {error}") from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if is_new and not any(folder.iterdir()):
            folder.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
