"""The settings of `arcmask prepare`, and the rule that says which documents are held out."""

import re
from dataclasses import dataclass, field, fields
from typing import Literal

from arcmask.errors import ArcmaskError, check_choice, check_range
from arcmask.settings import MAX_LENGTH


@dataclass(frozen=True)
class Holdout:
    """A rule for held-out documents: `every:N` (each N-th), `last:N` (the last N) or `none`."""

    kind: str
    number: int

    @classmethod
    def parse(cls, rule: str) -> "Holdout":
        """Read a rule from text."""
        kind, _, number = rule.partition(":")
        if rule == "none":
            return cls("none", 0)
        minimum = {"every": 2, "last": 1}.get(kind)  # every:1 would leave nothing to train on
        if minimum is None or not re.fullmatch(r"\d{1,15}", number) or int(number) < minimum:
            raise ArcmaskError(
                f"the holdout is {rule!r}, but must be every:N (each N-th document), last:N (the last N documents) "
                "or none"
            )
        return cls(kind, int(number))

    def holds(self, document: int, total: int | None) -> bool:
        """Return whether a document, counted from 0, is held out. Only `last` needs `total`."""
        if self.kind == "last":
            assert total is not None
            return document >= total - self.number
        return self.kind == "every" and document % self.number == self.number - 1


# The usual split of OpenWebText, which has no validation part of its own.
_HOLDOUTS = {"antibodies": "last:1308", "openwebtext": "last:100000"}


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Which corpus to tokenise, how, and where to write the rows.

    Args:
        corpus: `sotu` or `antibodies` (built in), a text, .jsonl or .parquet file, a folder of such files, or
            `hub:NAME[:CONFIG][@REVISION]`.
        out: The folder to write. The work is done in OUT.partial, which is renamed when it is complete.
        tokenizer: `gpt2`, `text8`, `residues` (of proteins), `bpe:SIZE` (trained on this corpus), the folder of a
            tokenizer, or `hub:NAME`.
        length: Tokens per row.
        holdout: Validation documents: `every:N`, `last:N` or `none`. Default: `every:20`, or `last:100000` for
            OpenWebText.
        documents: Use only the first N documents. A streamed corpus needs it for `last:N`.
        row_form: What a row is: `stream` (a piece of the joined documents) or `enclosed` (a piece that is shorter by
            two, between [CLS] and [SEP] or between two end-of-text tokens). Default: enclosed if the tokenizer has
            [CLS] and [SEP].
        pack: `stream` joins the documents and cuts them into rows; `none` makes each document a row, padded or cut off.
        kind: What text it is, for a copy of a known corpus: openwebtext says that the files hold OpenWebText. Default:
            what the name of the corpus says.
        text_key: The key or column that holds the text, in JSONL, parquet and hub datasets.
        streaming: Stream a hub dataset instead of storing it first.
        shard_rows: Rows per shard file. Default: about 64 million tokens.
        verify: Prepare nothing, but compare every file of a finished OUT with its recorded hash.
    """

    corpus: str
    out: str
    tokenizer: str = "gpt2"
    length: int = 1024
    holdout: str | None = None
    documents: int | None = None
    row_form: Literal["stream", "enclosed"] | None = None
    pack: Literal["stream", "none"] = "stream"
    kind: str | None = None
    text_key: str = "text"
    streaming: bool = False
    shard_rows: int | None = None
    verify: bool = field(default=False, metadata={"flag": True})

    def __post_init__(self) -> None:
        for name in ("corpus", "out", "tokenizer", "text_key", "kind"):
            if getattr(self, name) == "":
                raise ArcmaskError(f"{name} is empty")
        check_range(2, MAX_LENGTH, self, "length")
        check_choice("row_form", self.row_form or "stream", ("stream", "enclosed"))
        check_choice("pack", self.pack, ("stream", "none"))
        check_range(1, 10**12, self, "documents", "shard_rows")
        if self.streaming and not self.corpus.startswith("hub:"):
            raise ArcmaskError(f"only a hub dataset (hub:NAME) can be streamed, but the corpus is {self.corpus!r}")
        if self.holdout is not None:
            Holdout.parse(self.holdout)

    def unused(self) -> dict[str, str]:
        """Return the settings that have no effect beside the others, each with the reason."""
        if self.verify:
            names = {one.name for one in fields(self)} - {"corpus", "out", "verify"}
            return dict.fromkeys(names, "verify prepares nothing")
        if self.corpus == "sotu" or self.corpus.endswith((".txt", ".md")):
            return {"text_key": f"{self.corpus} has no keys or columns"}
        return {}

    @property
    def text_kind(self) -> str | None:
        """What text it is: the kind that is given, or that of a corpus that is known by its name."""
        if self.kind is not None or self.corpus in ("sotu", "antibodies"):
            return self.kind or self.corpus
        name = self.corpus.removeprefix("hub:").partition("@")[0].partition(":")[0].rpartition("/")[2].lower()
        return name if self.corpus.startswith("hub:") and name == "openwebtext" else None

    @property
    def holdout_rule(self) -> str:
        """The rule for validation documents, with the default filled in."""
        return self.holdout or _HOLDOUTS.get(self.text_kind or "", "every:20")

    @property
    def rows_per_shard(self) -> int:
        """Rows per shard file, with the default filled in."""
        return self.shard_rows or max(1, (1 << 26) // self.length)
