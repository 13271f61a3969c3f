"""Folders of the cache: whole or not there, checked by each process that opens them, and without leftovers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arcmask.data import open_tokenizer, tokenizers
from arcmask.downloads import _verify, cached_folder
from arcmask.errors import ArcmaskError
from arcmask.evaluation import open_evaluator

NAMES = ("small", "large")


def build(folder: Path) -> None:
    (folder / "small").write_bytes(b"small")
    (folder / "large").write_bytes(bytes(1 << 20))


def reopen() -> Path:
    """Open the folder as another process does."""
    _verify.cache_clear()
    return cached_folder("things", build)


def damage(path: Path, place: int, *, keep_time: bool) -> None:
    status, content = path.stat(), bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("name", "place", "keep_time"),
    [("small", 2, False), ("small", 2, True), ("large", 0, True), ("large", -1, True), ("large", 70_000, False)],
)
def test_a_damaged_file_is_named_by_every_later_process(name, place, keep_time):
    folder = reopen()
    assert reopen() == folder
    damage(folder / name, place, keep_time=keep_time)
    for _ in range(2):
        with pytest.raises(ArcmaskError, match=f"{name} is missing or was changed .* remove {folder} and run"):
            reopen()
    shutil.rmtree(folder)
    assert (reopen() / name).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_or_shorter_file_is_named_and_a_copy_is_not(name):
    folder = reopen()
    shutil.copy(folder / name, folder / "copy")
    (folder / "copy").replace(folder / name)  # another time, the same content
    reopen()
    os.truncate(folder / name, 3)
    with pytest.raises(ArcmaskError, match=f"^{folder / name} is missing or was changed"):
        reopen()
    (folder / name).unlink()
    with pytest.raises(ArcmaskError, match=f"{name} is missing or was changed"):
        reopen()


@pytest.mark.parametrize("content", ["", "[]", '{"small": 1}', '{"small": ["a", null, 0, 1]}', "\x00"])
def test_a_damaged_record_is_a_sentence(content):
    folder = reopen()
    (folder / "hashes.json").write_text(content)
    with pytest.raises(ArcmaskError, match=r"(hashes\.json|small is missing or was changed).*; remove /.* and run the"):
        reopen()


def test_a_folder_of_an_earlier_version_has_no_record_and_opens():
    folder = reopen()
    (folder / "hashes.json").unlink()
    assert reopen() == folder


KILLED = """
import os, signal
from arcmask.downloads import cached_folder
def build(folder):
    (folder / "small").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
cached_folder("things", build)
"""


def test_what_a_killed_download_left_is_removed_by_the_next_one(cache):
    assert subprocess.run([sys.executable, "-c", KILLED], check=False).returncode == -9
    assert (cache / ".fetching-things").is_dir()
    folder = reopen()
    assert (folder / "small").read_bytes() == b"small"
    assert not list(cache.glob(".fetching*"))


def test_a_damaged_gpt2_tokenizer_is_named(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "copy"))
    shutil.copytree(cache / "tokenizers", tmp_path / "copy" / "tokenizers")
    assert open_tokenizer("gpt2").size == 50258
    path = next((tmp_path / "copy").rglob("vocab.bpe"))
    damage(path, 1000, keep_time=True)
    tokenizers._gpt2.cache_clear()  # as in another process
    with pytest.raises(ArcmaskError, match=r"vocab\.bpe is missing or was changed .* remove"):
        open_tokenizer("gpt2")


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_an_evaluator_whose_weights_were_cut_short_is_a_sentence(evaluator_folder, tmp_path, size):
    """safetensors maps the file; a size that does not fit its header is refused before a page is touched."""
    folder = Path(shutil.copytree(evaluator_folder, tmp_path / "evaluator"))
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1 if size < 0 else size)
    with pytest.raises(ArcmaskError, match=r"evaluator does not open as a causal LM"):
        open_evaluator(str(folder))
