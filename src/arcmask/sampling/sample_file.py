"""A .jsonl file of samples that several processes can append to, and that an interrupted command can continue.

Lines are written under a lock. A line that a killed process left unfinished is removed. Samples that the file has are
not drawn again.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

from arcmask.errors import ArcmaskError
from arcmask.files import writing
from arcmask.run_folder import LOCK, locked

_EARLIER = {
    "band": [0.2, 0.8],
    "reuse": False,
    "stop_at_end": False,
}  # what samples were drawn with before these were settings


class SampleFile:
    """A .jsonl file of samples that share their settings. Other processes may write to it too."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.indices: set[int] = set()  # of the samples that the file has
        self._bytes_read = 0
        self._lines_read = 0
        if path.exists():
            self.append([])

    def append(self, records: list[dict[str, Any]]) -> None:
        """Append the records whose index is not in the file."""
        with writing(self.path), locked(self.path.with_name(f".{self.path.name}{LOCK}")):
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                self._read_new_lines(handle)
                new = [record | self.settings for record in records if record["index"] not in self.indices]
                content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in new).encode()
                if os.write(handle, content) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(handle)

    def _read_new_lines(self, handle: int) -> None:
        """Read the new lines, remove an unfinished one, and raise for lines with other settings."""
        content = os.pread(handle, os.fstat(handle).st_size - self._bytes_read, self._bytes_read)
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.ftruncate(handle, self._bytes_read + end)
        for line in content[:end].splitlines():
            self._lines_read += 1
            self.indices.add(self._check(line))
        self._bytes_read += end

    def _check(self, line: bytes) -> int:
        """Return the index of the sample in a line; raise if it has other settings."""
        try:
            record = json.loads(line)
            index = int(record["index"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArcmaskError(
                f"{self.path}, line {self._lines_read}, is not a sample of arcmask; give another file"
            ) from error
        for key, value in self.settings.items():
            recorded = record.get(key, _EARLIER.get(key))
            if recorded != value:
                raise ArcmaskError(
                    f"{self.path} holds samples with {key} {recorded!r}, but now {key} is {value!r}; give another file"
                )
        return index
