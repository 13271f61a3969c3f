"""From text to batches: tokenizers, corpora, prepared rows of token ids, and the loader that orders them.

Attributes load late: `import arcmask.data`, and the settings in `arcmask.data.config`, need no torch.
"""

import importlib
from typing import Any

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
    if name in _HOMES:
        return getattr(importlib.import_module(f"arcmask.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'arcmask.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
