"""The work of `prepare`: its settings, checked against the corpus, the folder and the work already done.

It reads what earlier runs recorded. It encodes and writes nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from arcmask.data.corpora import Corpus, open_corpus
from arcmask.data.prepared import INDEX, Index, partial_of, read_index
from arcmask.data.tokenizers import bpe_size, has_own_kind, open_tokenizer, tokenizer_identity
from arcmask.errors import ArcmaskError
from arcmask.files import sha256, writable
from arcmask.run_folder import read_settings, refuse_other_settings
from arcmask.settings.prepare import Holdout, PrepareConfig

PROGRESS = "progress.json"


class Document(NamedTuple):
    """A document, its number in the corpus (from 0), and its length in UTF-8."""

    number: int
    text: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """Checked settings, with the corpus opened. `total` is the number of documents, None if it is not known."""

    config: PrepareConfig
    corpus: Corpus
    holdout: Holdout
    total: int | None
    settings: dict[str, Any]
    out: Path

    @property
    def partial(self) -> Path:
        """The folder in which the work is done."""
        return partial_of(self.out)

    def documents(self, start: int) -> Iterator[Document]:
        """Yield the documents from number `start` on."""
        limit = self.config.documents
        texts = islice(self.corpus.documents(start), None if limit is None else max(0, limit - start))
        for number, text in enumerate(texts, start):
            try:
                yield Document(number, text, len(text.encode()))
            except UnicodeEncodeError as error:
                where = f"document {number} of {self.config.corpus}"
                raise ArcmaskError(f"{where} is not valid Unicode: {error.reason}") from error

    def refuse_others(self, folder: Path, settings: dict[str, Any], source: dict[str, str]) -> None:
        """Raise if a folder was prepared with other settings, or before the corpus was edited."""
        refuse_other_settings(folder, settings, self.settings)
        if not self.corpus.matches(source):
            raise ArcmaskError(f"{self.config.corpus} was edited since {folder} was begun; give another folder")

    def split_of(self, document: int) -> str:
        """Return the name of the split that a document belongs to."""
        return "validation" if self.holdout.holds(document, self.total) else "train"


def open_job(config: PrepareConfig, corpus: Corpus | None = None) -> Job | Index:
    """Check everything that costs little. Return the index if the work is already done.

    `corpus` is used in place of the one that the settings name.
    """
    if config.tokenizer.startswith("bpe:"):
        bpe_size(config.tokenizer)
    out = Path(config.out).expanduser().absolute()
    index = read_index(out) if (out / INDEX).is_file() else None
    try:
        corpus = corpus or open_corpus(config.corpus, text_key=config.text_key, streaming=config.streaming)
    except ArcmaskError:
        if index is None or not _is_gone(config.corpus, index):
            raise
        settings = _settings(
            config, index.settings["corpus"], config.holdout or index.settings["holdout"], _row_form(config, index)
        )
        refuse_other_settings(out, index.settings, settings)
        return index
    rule = config.holdout or corpus.default_holdout
    holdout, settings = Holdout.parse(rule), _settings(config, corpus.identity, rule, _row_form(config, index))
    job = Job(config=config, corpus=corpus, holdout=holdout, total=None, settings=settings, out=out)
    if index is not None:
        job.refuse_others(out, index.settings, index.source)
        return index
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArcmaskError(f"{config.out!r} exists and is not a prepared corpus; choose a new folder")
    if out.is_mount():
        raise ArcmaskError(f"{config.out!r} is where a disk is mounted; choose a folder inside it")
    writable(job.partial, is_folder=True)
    job = replace(job, total=_total(corpus, holdout, config))
    read_record(job)
    return job


def _row_form(config: PrepareConfig, index: Index | None) -> str:
    """Return the form of the rows: the one that is given, that of a finished folder, or what suits the tokenizer."""
    if index is not None:
        return config.row_form or index.settings.get("row_form", "stream")
    if config.row_form == "stream" or (has_own_kind(config.tokenizer) and config.row_form is None):
        return "stream"
    is_possible = not has_own_kind(config.tokenizer) and open_tokenizer(config.tokenizer).enclosing is not None
    if config.row_form == "enclosed" and not is_possible:
        raise ArcmaskError(f"row_form is enclosed, but the tokenizer {config.tokenizer} has no [CLS] and [SEP]")
    if is_possible and config.length < 3:
        raise ArcmaskError(f"length is {config.length}, but a row with [CLS] and [SEP] needs at least 3 tokens")
    return "enclosed" if is_possible else "stream"


def _settings(config: PrepareConfig, corpus: str, holdout: str, row_form: str) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "documents": config.documents,
        "holdout": holdout,
        "length": config.length,
        "shard_rows": config.rows_per_shard,
        "text_key": config.text_key,
        "tokenizer": tokenizer_identity(config.tokenizer),
        # Folders of streams have no such entry: earlier versions wrote them too.
        **({} if row_form == "stream" else {"row_form": row_form}),
    }


def _is_gone(corpus: str, index: Index) -> bool:
    """Return whether the corpus of a finished folder is no longer there; the folder stands on its own."""
    path = Path(corpus).expanduser()
    return not path.exists() and index.settings["corpus"].partition(" with files ")[0] in (corpus, path.resolve().name)


def _total(corpus: Corpus, holdout: Holdout, config: PrepareConfig) -> int | None:
    """Return the number of documents to prepare, None for a stream without a limit."""
    total = min((count for count in (corpus.count(), config.documents) if count is not None), default=None)
    if holdout.kind == "last":
        if total is None:
            raise ArcmaskError(
                f"{config.corpus} is streamed, so its size is not known; for the holdout last:N set documents to it"
            )
        if total <= holdout.number:
            raise ArcmaskError(f"the holdout last:{holdout.number} leaves nothing to train on out of {total} documents")
    if holdout.kind == "every" and total is not None and 0 < total < holdout.number:
        fewer = f"--holdout every:{total} or " if total > 1 else ""
        raise ArcmaskError(
            f"{config.corpus} has {total} document{'s' if total > 1 else ''}, so the holdout every:{holdout.number} "
            f"holds out none; give {fewer}--holdout none"
        )
    return total


def read_record(job: Job) -> dict[str, Any] | None:
    """Return the record of an earlier run, if there was one. It must have had the same settings and corpus."""
    if (job.partial / INDEX).is_file():  # killed just before its folder was renamed
        index = read_index(job.partial)
        job.refuse_others(job.partial, index.settings, index.source)
    path = job.partial / PROGRESS
    if not path.is_file():
        return None
    record = read_settings(path)
    if record.pop("hash", None) != record_hash(record):
        raise ArcmaskError(f"{path} was changed since it was written; remove {job.partial} and start again")
    job.refuse_others(job.partial, record["settings"], record["source"])
    return record


def record_hash(record: dict[str, Any]) -> str:
    """Return the hash that a record of progress is stored with."""
    return sha256(json.dumps(record, sort_keys=True).encode())
