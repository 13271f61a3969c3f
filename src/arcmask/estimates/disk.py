"""Count the disk space of data, downloads and results, in bytes. Nothing is opened but what is on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arcmask.data.prepared import INDEX
from arcmask.estimates.sizes import Layout, is_known
from arcmask.settings.prepare import PrepareConfig

_TOKEN = {"text8": 1.0}  # bytes of text per token; every other tokenizer is taken to be like GPT-2's
_LIKE_GPT2 = 4.4
_ID = 2  # bytes of a stored token, with up to 65,536 of them
_ARROW = 1.05  # the size of a dataset in the cache of `datasets`, relative to its text
SAMPLE = 12  # bytes per position of a sample: its id and its text
RESULT = 300  # bytes of an evaluator's result for a text, without features


@dataclass(frozen=True)
class _Corpus:
    """The size of a corpus that a recipe names."""

    text: float
    download: float


_CORPORA = {"sotu": _Corpus(12.2e6, 0.0), "openwebtext": _Corpus(39.8e9, 24.0e9)}


def data_parts(folder: str, prepare: PrepareConfig | None) -> dict[str, float]:
    """Return the bytes of prepared rows, and of the downloads and caches that they are made from.

    Rows that exist are counted as they are. The size of text that is not known is left out.
    """
    if (Path(folder) / INDEX).is_file():
        return {"data": _size(Path(folder))}
    if prepare is None:
        return {}
    corpus, path = _CORPORA.get(prepare.text_kind or ""), Path(prepare.corpus).expanduser()
    if prepare.text_kind != "sotu" and path.exists():  # a copy of the user's
        corpus = _Corpus(_size(path) if corpus is None else corpus.text, 0.0)
    if corpus is None:
        return {}
    parts = {"data": corpus.text / _TOKEN.get(prepare.tokenizer, _LIKE_GPT2) * _ID}
    if corpus.download and not prepare.streaming:
        parts["download and cache of the text"] = corpus.download + _ARROW * corpus.text
    return parts


def _size(path: Path) -> float:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return float(sum(file.stat().st_size for file in files if file.is_file()))


def download_parts(layouts: Mapping[str, Layout]) -> dict[str, float]:
    """Return the bytes of the models, by name, that are fetched into a cache."""
    return {name: 4.0 * layout.parameters for name, layout in layouts.items() if is_known(name)}
