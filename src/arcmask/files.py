"""Write files that appear whole or not at all, and hash them. The module knows bytes and paths, not their meaning."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError

UNFINISHED = ".tmp"  # the ending of files and folders that are being written; a killed process can leave one behind
SCRATCH = ".writing-"  # the beginning of the folders in which `written_whole` writes
LAST = ("config.json", "inspect.json")  # these say that a folder is complete, so they are moved into place last
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PAGE, _PAGES = 4096, 16
_ADDED = 16  # bytes that are added to a name, at most, while its file or folder is written or locked


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, flush it to the disk, and rename it."""
    with file_written_whole(path) as beside:
        beside.write_bytes(content)


@contextmanager
def file_written_whole(path: Path) -> Iterator[Path]:
    """Yield the path to write a file to. On leaving it is flushed and renamed; after an error it is removed."""
    beside = path.with_name(path.name + UNFINISHED)
    try:
        with writing(path):
            yield beside
            flush(beside)
            beside.replace(path)
            flush(path.parent)
    finally:
        with suppress(OSError):
            beside.unlink()


def writable(path: Path, *, is_folder: bool = False) -> Path:
    """Return the path of a file or a folder, or raise if it cannot be written. Nothing is written to find out."""
    if not is_folder and path.exists() and not path.is_file():
        raise ArcmaskError(f"cannot write to {path}: it is not a regular file")
    nearest = nearest_folder(path)
    if (is_folder or nearest != path) and not nearest.is_dir():
        raise ArcmaskError(f"cannot write to {path}: {nearest} is not a folder")
    # A file is written beside its place and renamed, so its folder must allow it too.
    folder = nearest if nearest.is_dir() else nearest.absolute().parent
    for place, mode in ((nearest, os.W_OK), (folder, os.W_OK | os.X_OK)):
        if not os.access(place, mode):
            raise ArcmaskError(f"cannot write to {path}: {place} does not allow it")
    if len(os.fsencode(path.name)) + _ADDED > os.pathconf(folder, "PC_NAME_MAX"):
        raise ArcmaskError(f"cannot write to {path}: its name is too long")
    return path


def nearest_folder(path: Path) -> Path:
    """Return the path itself if it exists, or the nearest folder above it that does."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove a folder, and those above it, that did not exist before the block if they are empty after it."""
    existing = nearest_folder(folder)
    try:
        yield
    finally:
        while folder.absolute() != existing.absolute() and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    with _opened(path) as handle:
        os.fsync(handle)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
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
    # A surrogate alone has no UTF-8. Its escape, which is also JSON's, is written instead.
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes as text."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> "hashlib._Hash":
    """Return the SHA-256 of a file; it can be updated with what is appended to the file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def check_hash(path: Path, expected: str, advice: str) -> None:
    """Raise unless a file has the expected SHA-256."""
    if not path.is_file() or hash_file(path).hexdigest() != expected:
        raise ArcmaskError(f"{path} is missing or was changed since it was written; {advice}")


def sampled_hash(path: Path) -> str:
    """Return the SHA-256 of a few pages spread over a file, of all of it if it is small."""
    size, digest = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        for page in range(_PAGES):
            file.seek(max(0, size - _PAGE) * page // (_PAGES - 1))
            digest.update(file.read(_PAGE))
    return digest.hexdigest()


def disk_error(error: BaseException | None) -> str | None:
    """Return why the disk refused what was written; None if neither an error nor what is behind it is about the disk.

    torch, safetensors and tokenizers have error types of their own.
    """
    if error is None:
        return None
    code = getattr(error, "errno", None)
    if match := re.search(r"(?:\(os error |Os \{ code: )(\d+)", str(error)):  # safetensors wrote it in both ways
        code = int(match[1])
    if code in _FULL:
        return "the disk is full; free some space and run the same command again"
    if code is None:
        behind = error.__context__ if isinstance(error, RuntimeError) else error.__cause__  # torch's writer
        return str(error) if isinstance(error, OSError) else disk_error(behind)
    return os.strerror(code)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say that `path` could not be written, and why, if the disk fails in the block."""
    try:
        yield
    except ArcmaskError:
        raise
    except Exception as error:
        if reason := disk_error(error):
            raise ArcmaskError(f"{path} could not be written: {reason}") from error
        raise


@contextmanager
def written_whole(folder: Path, replaces: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield a scratch folder. On leaving it becomes `folder`, or its files are moved there if `folder` has files.

    After an error nothing is moved. Old files in `folder` that match `replaces` and were not written again are removed.
    """
    with writing(folder), removed_if_empty(folder.parent):
        writable(folder, is_folder=True).parent.mkdir(parents=True, exist_ok=True)
        is_new = not folder.exists() or (not any(folder.iterdir()) and not folder.is_mount())
        scratch, lock = _make_scratch(folder.parent if is_new else folder)
        try:
            yield scratch
            _move(scratch, folder, replaces, is_new)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(lock)


def _move(scratch: Path, folder: Path, replaces: tuple[str, ...], is_new: bool) -> None:
    written = sorted(scratch.iterdir(), key=lambda file: file.name in LAST)
    for file in written:
        file.chmod(0o666 & ~_umask())  # some writers make files that only their user can read
        flush(file)
    if is_new:
        scratch.chmod(0o777 & ~_umask())
        with suppress(OSError):  # fails if another process has written there in the meantime
            scratch.rename(folder)
            flush(folder.parent)
            return
    for pattern in replaces:
        for old in folder.glob(pattern):
            if old.name not in {file.name for file in written}:
                old.unlink()
    for file in written:
        file.replace(folder / file.name)
    flush(folder)


def _make_scratch(folder: Path) -> tuple[Path, int]:
    """Return a new folder, locked until its handle is closed. Those that killed processes left are removed.

    On network file systems without such locks nothing is removed.
    """
    for leftover in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError), _opened(leftover) as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover, ignore_errors=True)
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder))
        with suppress(FileNotFoundError):
            handle = os.open(scratch, os.O_RDONLY)
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH)
            if scratch.exists():  # it was not taken for a leftover before it was locked
                return scratch, handle
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
