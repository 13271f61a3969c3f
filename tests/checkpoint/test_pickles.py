"""Files of torch.save: both forms are read, nothing in them is run, and no size in them is believed."""

import contextlib
import io
import pickle
import time
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from models import small_mdlm

import arcmask
from arcmask.checkpoint import load
from arcmask.checkpoint.pickles import Inert, read_torch_file
from arcmask.errors import ArcmaskError

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def content():
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {str(dtype): (torch.arange(6) % 2).to(dtype) for dtype in DTYPES}
    views = {"row": base[1], "transposed": base.T, "strided": base[::2, 1::3], "empty": base[:0], "scalar": base[0, 0]}
    return {
        "state": OrderedDict(tensors | views),
        "parameter": torch.nn.Parameter(base),
        "n": 3,
        "names": ["a", (1, 2)],
    }


@pytest.mark.parametrize("is_zip", [True, False])
def test_both_forms_are_read_as_torch_reads_them(tmp_path, is_zip):
    torch.save(content(), tmp_path / "a.ckpt", _use_new_zipfile_serialization=is_zip)
    ours = read_torch_file(tmp_path / "a.ckpt")
    reference = torch.load(tmp_path / "a.ckpt", weights_only=False)
    assert ours["n"] == 3
    assert ours["names"] == ["a", (1, 2)]
    for name, tensor in reference["state"].items():
        assert ours["state"][name].dtype == tensor.dtype
        assert torch.equal(ours["state"][name], tensor)
    assert torch.equal(ours["parameter"], reference["parameter"])


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_whole_checkpoint_in_either_form_loads(tmp_path, is_zip):
    model = small_mdlm()
    torch.save({"state_dict": model.state_dict()}, tmp_path / "a.ckpt", _use_new_zipfile_serialization=is_zip)
    assert torch.equal(load(tmp_path / "a.ckpt").table, model.table)


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_cut_off_anywhere_is_one_sentence(tmp_path, is_zip):
    torch.save(content(), tmp_path / "a.ckpt", _use_new_zipfile_serialization=is_zip)
    whole = (tmp_path / "a.ckpt").read_bytes()
    for end in range(0, len(whole) - 1, 97):
        (tmp_path / "cut.ckpt").write_bytes(whole[:end])
        with pytest.raises(ArcmaskError, match=r"cut\.ckpt"):
            read_torch_file(tmp_path / "cut.ckpt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_script_first", [True, False])
def test_a_torchscript_program_behind_a_second_directory_is_never_run(tmp_path, monkeypatch, is_script_first):
    """Python's zipfile reads one directory and torch's reader another, so only one reader may ever see the file."""
    script, plain = io.BytesIO(), io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), script)
    torch.save({"state_dict": small_mdlm().state_dict()}, plain)
    parts = (script, plain) if is_script_first else (plain, script)
    (tmp_path / "a.ckpt").write_bytes(b"".join(part.getvalue() for part in parts))
    opened = []
    monkeypatch.setattr(torch.jit, "load", lambda *arguments, **_: opened.append(arguments))
    with contextlib.suppress(ArcmaskError):
        load(tmp_path / "a.ckpt")
    assert not opened


def test_no_source_file_gives_a_checkpoint_to_torch_load():
    sources = Path(arcmask.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "torch.load(" in path.read_text() or "jit.load(" in path.read_text()]


def test_a_compressed_bomb_is_refused_at_once(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps({}))
        archive.writestr("a/data/0", b"\0" * (1 << 26))
    start = time.monotonic()
    with pytest.raises(ArcmaskError, match=r"has compressed parts, which torch\.save never writes"):
        read_torch_file(tmp_path / "bomb.ckpt")
    assert time.monotonic() - start < 5


class Rebuilt:
    """Pickles as a call of torch's own function with sizes of our choice."""

    def __init__(self, storage, *arguments):
        self.storage, self.arguments = storage, arguments

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (self.storage, *self.arguments, False, OrderedDict())


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, tuple) and value[:1] == ("storage",):
            return value
        return None


def archive(path, value, data=b"\0" * 16):
    pickled = io.BytesIO()
    Pickler(pickled, protocol=2).dump(value)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", pickled.getvalue())
        file.writestr("a/data/0", data)
    return path


STORAGE = ("storage", torch.FloatStorage, "0", "cpu", 4)


@pytest.mark.parametrize(
    "value",
    [
        Rebuilt(STORAGE, 0, (5,), (1,)),
        Rebuilt(STORAGE, 2, (4,), (1,)),
        Rebuilt(STORAGE, 0, (10**9,), (0,)),
        Rebuilt(STORAGE, 0, (2, 2), (1,)),
        Rebuilt(STORAGE, -1, (2,), (1,)),
        Rebuilt(STORAGE, 0, (2,), (-1,)),
        Rebuilt(STORAGE, 0, (1,) * 70, (1,) * 70),
        Rebuilt(("storage", torch.FloatStorage, "0", "cpu", 10**12), 0, (1,), (1,)),
        Rebuilt(("storage", torch.FloatStorage, "missing", "cpu", 4), 0, (1,), (1,)),
        Rebuilt(("storage", torch.nn.Linear, "0", "cpu", 4), 0, (1,), (1,)),
    ],
)
def test_sizes_strides_and_storages_that_do_not_fit_are_refused(tmp_path, value):
    with pytest.raises(ArcmaskError, match="cannot be read as a checkpoint"):
        read_torch_file(archive(tmp_path / "a.ckpt", {"state_dict": {"x": value}}))


def test_settings_that_contain_themselves_do_not_hang(tmp_path):
    cycle = {"model": {"length": 16}}
    cycle["self"] = cycle
    doubled = []
    for _ in range(60):
        doubled = [doubled, doubled]
    for number, settings in enumerate((cycle, {"model": {"length": 16}, "laughs": doubled})):
        path = tmp_path / f"{number}.ckpt"
        torch.save({"state_dict": small_mdlm().state_dict(), "hyper_parameters": {"config": settings}}, path)
        start = time.monotonic()
        assert load(path).config.model_length == 16
        assert time.monotonic() - start < 20


def test_unknown_objects_are_stubs(tmp_path):
    torch.save({"x": zlib.decompressobj, "y": Inert()}, tmp_path / "a.ckpt")
    value = read_torch_file(tmp_path / "a.ckpt")
    assert value["x"] is Inert
    assert isinstance(value["y"], Inert)
