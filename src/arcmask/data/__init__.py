"""From text to batches: tokenizers, corpora, prepared rows of token ids, and the loader that orders them.

Attributes load late: `import arcmask.data`, and the settings in `arcmask.data.config`, need no torch.
"""

from typing import Any

from arcmask import late

_HOMES = {
    "Batches": "loader",
    "Index": "index",
    "PrepareConfig": "config",
    "PreparedCorpus": "prepared",
    "Tokenizer": "tokenizers",
    "in_order": "loader",
    "normalise_text8": "tokenizers",
    "open_corpus": "corpora",
    "open_prepared": "prepared",
    "open_tokenizer": "tokenizers",
    "plan": "packing",
    "prepare": "packing",
    "read_index": "index",
    "train_bpe": "tokenizers",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return late.attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
