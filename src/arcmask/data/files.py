"""Files that appear whole or not at all, and their hashes. Knows bytes and paths, nothing of what is in them."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

# What a killed run can leave behind; nothing else in the package has such a name.
UNFINISHED = ".tmp"


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, flush to the disk, rename."""
    beside = path.with_name(path.name + UNFINISHED)
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush(path.parent)


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
