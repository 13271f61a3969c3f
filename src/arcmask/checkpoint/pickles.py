"""Read a file of `torch.save`, in its zip or its legacy form, without running anything that it contains.

The file is never given to `torch.load`. A pickle can name any function; here only the parts of a tensor are known, and
every other name becomes an inert stub that keeps its state as plain data. Every size is checked against the size of
the file before memory is taken for it.
"""

import mmap
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError

_DTYPES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LOCAL_HEADER = 30  # bytes of a zip entry's fixed header; two lengths stand at its end
_MAX_PICKLE = 1 << 28  # bytes; the pickle of a checkpoint holds names and settings, not weights
_MAX_DIMENSIONS = 16


class Inert:
    """A stand-in for an object of a class that is not known; it keeps its state and runs nothing."""

    state: Any = None  # on the class: pickle creates objects without calling __init__

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *_: Any, **__: Any) -> "Inert":
        return self

    def __setitem__(self, _: Any, __: Any) -> None:
        """Ignore an item of a pickled mapping."""

    def append(self, _: Any) -> None:
        """Ignore an item of a pickled list."""

    def extend(self, _: Any) -> None:
        """Ignore items of a pickled list."""


class _StorageType:
    """The name of a storage class in the pickle; its dtype, or None if it is not known."""

    def __init__(self, name: str) -> None:
        self.dtype = _DTYPES.get(name)

    def __call__(self, *_: Any) -> Inert:
        return Inert()


class _Unpickler(pickle.Unpickler):
    """Resolve tensors and plain containers only. `storage` returns the data (N,) of a storage by its key."""

    def __init__(self, file: IO[bytes], storage: Callable[[str, torch.dtype, int], Tensor]) -> None:
        super().__init__(file)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return _StorageType(name)
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
            ("torch", "Size"): tuple,
            ("collections", "OrderedDict"): OrderedDict,
        }
        return known.get((module, name), Inert)

    def persistent_load(self, pid: Any) -> Tensor:
        kind, storage_type, key, _, count = pid[:5]
        if kind != "storage" or not isinstance(storage_type, _StorageType) or storage_type.dtype is None:
            raise ValueError("a tensor has an unknown kind of storage")
        if not isinstance(count, int) or count < 0 or (len(pid) > 5 and pid[5] is not None):
            raise ValueError(f"a storage has the size {count}")
        return self._storage(str(key), storage_type.dtype, count)


def _rebuild_tensor(data: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    """Return a view of a storage, which must lie inside it and may not repeat its numbers."""
    numbers = (offset, *size, *stride)
    if not isinstance(data, Tensor) or not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("a tensor has no valid storage, size or stride")
    if len(size) != len(stride) or len(size) > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {len(size)} dimensions and {len(stride)} strides")
    count = 1
    for length in size:
        count *= length
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if count else offset
    if count > data.numel() or last >= max(1, data.numel()) or offset > data.numel():
        raise ValueError(f"a tensor of size {tuple(size)} does not fit into its storage of {data.numel()} numbers")
    return torch.as_strided(data, tuple(size), tuple(stride), offset)


def read_torch_file(path: Path) -> Any:
    """Return the content of a file of `torch.save`: containers, tensors, plain values and inert stubs."""
    if not path.is_file():
        raise ArcmaskError(f"there is no file {path}")
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            return _read_zip(path, file) if is_zip else _read_legacy(path, file)
    except ArcmaskError:
        raise
    except (zipfile.BadZipFile, EOFError, struct.error) as error:
        raise ArcmaskError(f"{path} is not a complete checkpoint of torch.save ({error})") from error
    except Exception as error:  # a damaged or hostile file can raise anything in the unpickler
        reason = " ".join(str(error).split())[:200]
        raise ArcmaskError(f"{path} cannot be read as a checkpoint ({type(error).__name__}: {reason})") from error


def _read_zip(path: Path, file: IO[bytes]) -> Any:
    with zipfile.ZipFile(file) as archive:
        records = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        if "constants.pkl" in records:
            raise ArcmaskError(f"{path} is a TorchScript program, not a checkpoint; it is not opened")
        if "data.pkl" not in records:
            raise zipfile.BadZipFile("it has no data.pkl")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in records.values()):
            raise ArcmaskError(f"{path} is refused: it has compressed parts, which torch.save never writes")
        if records["data.pkl"].file_size > _MAX_PICKLE:
            raise ArcmaskError(f"{path} is refused: its pickle has {records['data.pkl'].file_size} bytes")
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # tensors keep it alive; nothing is written back
        storages: dict[str, Tensor] = {}

        def storage(key: str, dtype: torch.dtype, count: int) -> Tensor:
            if key not in storages:
                entry = records[f"data/{key}"]
                storages[key] = _mapped(content, entry, dtype, count)
            return storages[key] if storages[key].dtype == dtype else storages[key].view(dtype)

        with archive.open(records["data.pkl"]) as pickled:
            return _Unpickler(pickled, storage).load()


def _mapped(content: mmap.mmap, entry: zipfile.ZipInfo, dtype: torch.dtype, count: int) -> Tensor:
    """Return the numbers of a stored zip entry without copying them."""
    header = content[entry.header_offset : entry.header_offset + _LOCAL_HEADER]
    name_length, extra_length = struct.unpack("<HH", header[-4:])
    start = entry.header_offset + _LOCAL_HEADER + name_length + extra_length
    if count * dtype.itemsize > entry.file_size or start + entry.file_size > len(content):
        raise ValueError(f"{entry.filename} has {entry.file_size} bytes, too few for {count} numbers")
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=start)


def _read_legacy(path: Path, file: IO[bytes]) -> Any:
    """Read the form before torch 1.6: pickles one after another, then the raw storages."""
    size = path.stat().st_size
    storages: dict[str, Tensor] = {}

    def storage(key: str, dtype: torch.dtype, count: int) -> Tensor:
        if count * dtype.itemsize > size:
            raise ValueError(f"a storage of {count} numbers is larger than the file")
        return storages.setdefault(key, torch.empty(count, dtype=dtype))

    def load() -> Any:
        return _Unpickler(file, storage).load()

    try:
        magic = load()
    except Exception as error:
        raise EOFError("it does not begin like one") from error
    if magic != _LEGACY_MAGIC:
        raise EOFError("it does not begin like one")
    load(), load()  # protocol version and byte sizes of the machine that wrote it
    content = load()
    for key in load():
        data = storages.get(str(key))
        (count,) = struct.unpack("<q", file.read(8))
        if data is None or count != data.numel():
            raise ValueError(f"the storage {key!r} has {count} numbers, which no tensor expects")
        raw = bytearray(file.read(count * data.dtype.itemsize))
        if len(raw) != count * data.dtype.itemsize:
            raise EOFError("its last storage is cut off")
        if count:
            data.copy_(torch.frombuffer(raw, dtype=data.dtype))
    return content
