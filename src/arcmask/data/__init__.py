"""From text to batches: tokenizers, corpora, prepared rows of token ids, and batches of them."""

from arcmask.data.antibodies import Antibodies
from arcmask.data.corpora import open_corpus
from arcmask.data.packing import prepare
from arcmask.data.prepared import Batches, Index, PreparedCorpus, interleaved, open_prepared, read_index
from arcmask.data.row_corpus import RowCorpus, RowForm, TensorRows
from arcmask.data.tokenizers import Tokenizer, normalise_text8, open_tokenizer, train_bpe
from arcmask.rows import PaddedRows
from arcmask.settings.prepare import PrepareConfig

__all__ = [
    "Antibodies",
    "Batches",
    "Index",
    "PaddedRows",
    "PrepareConfig",
    "PreparedCorpus",
    "RowCorpus",
    "RowForm",
    "TensorRows",
    "Tokenizer",
    "interleaved",
    "normalise_text8",
    "open_corpus",
    "open_prepared",
    "open_tokenizer",
    "prepare",
    "read_index",
    "train_bpe",
]
