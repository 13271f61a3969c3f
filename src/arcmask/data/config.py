"""The settings of `arcmask prepare`. Knows no tokenizer and opens no file: it is imported for `--help`."""

from dataclasses import dataclass

from arcmask.data.holdout import Holdout
from arcmask.errors import ArcmaskError


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """What to tokenise, how, and where to.

    Args:
        corpus: `sotu` (built in), a text, .jsonl or .parquet file, a folder of them, or `hub:NAME[:CONFIG]`.
        out: The folder to make; it appears when it is complete, and until then is OUT.partial.
        tokenizer: `gpt2`, `text8`, `bpe:SIZE` (trained on this corpus), a tokenizer's folder, or `hub:NAME`.
        length: Tokens in a row.
        holdout: Documents for validation: `every:N`, `last:N` or `none`. By default `every:20`; for OpenWebText
            from the hub, `last:100000`.
        documents: Use only the first so many documents. A streamed corpus needs it for `last:N`.
        text_key: The key or column of the text, in JSONL, parquet and hub datasets.
        streaming: Read a hub dataset without storing it first.
        shard_rows: Rows in a file of the result. By default as many as make about 64 million tokens.
    """

    corpus: str
    out: str
    tokenizer: str = "gpt2"
    length: int = 1024
    holdout: str | None = None
    documents: int | None = None
    text_key: str = "text"
    streaming: bool = False
    shard_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("corpus", "out", "tokenizer", "text_key"):
            if not getattr(self, name):
                raise ArcmaskError(f"{name} is empty")
        if self.length < 2:
            raise ArcmaskError(f"the length of a row is {self.length}, but must be at least 2 tokens")
        if self.documents is not None and self.documents < 1:
            raise ArcmaskError(f"documents is {self.documents}, but must be at least 1")
        if self.shard_rows is not None and self.shard_rows < 1:
            raise ArcmaskError(f"shard_rows is {self.shard_rows}, but must be at least 1")
        if self.streaming and not self.corpus.startswith("hub:"):
            raise ArcmaskError(f"only a hub dataset (hub:NAME) can be streamed, and the corpus is {self.corpus!r}")
        if self.holdout is not None:
            Holdout.parse(self.holdout)

    @property
    def rows_per_shard(self) -> int:
        """`shard_rows`, or its default."""
        return self.shard_rows or max(1, (1 << 26) // self.length)
