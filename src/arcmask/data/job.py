"""What there is to prepare: a configuration, checked against the corpus, the folder and the work already done.

Knows where things will lie and what earlier runs recorded; encodes and writes nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from arcmask.data.corpora import Corpus, open_corpus
from arcmask.data.index import INDEX, Index, partial_of, read_index
from arcmask.data.tokenizers import bpe_size, tokenizer_identity
from arcmask.errors import ArcmaskError
from arcmask.settings.prepare import Holdout, PrepareConfig

PROGRESS = "progress.json"


class Document(NamedTuple):
    """A document, its number in the corpus (from 0), and its length in UTF-8."""

    number: int
    text: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """A checked configuration: what there is to do."""

    config: PrepareConfig
    corpus: Corpus
    holdout: Holdout
    total: int | None
    settings: dict[str, Any]
    out: Path

    @property
    def partial(self) -> Path:
        return partial_of(self.out)

    def documents(self, start: int) -> Iterator[Document]:
        """The documents from number `start` on."""
        limit = self.config.documents
        texts = islice(self.corpus.documents(start), None if limit is None else max(0, limit - start))
        for number, text in enumerate(texts, start):
            try:
                yield Document(number, text, len(text.encode()))
            except UnicodeEncodeError as error:
                where = f"document {number} of {self.config.corpus}"
                raise ArcmaskError(f"{where} is not valid Unicode: {error.reason}") from error

    def split_of(self, document: int) -> str:
        return "validation" if self.holdout.holds(document, self.total) else "train"


def open_job(config: PrepareConfig) -> Job | Index:
    """Check everything that costs little; an Index if the work is done already."""
    if config.tokenizer.startswith("bpe:"):
        bpe_size(config.tokenizer)
    corpus = open_corpus(config.corpus, text_key=config.text_key, streaming=config.streaming)
    rule = config.holdout or corpus.default_holdout
    out = Path(config.out).expanduser().absolute()
    settings = {
        "corpus": corpus.identity,
        "documents": config.documents,
        "holdout": rule,
        "length": config.length,
        "shard_rows": config.rows_per_shard,
        "text_key": config.text_key,
        "tokenizer": tokenizer_identity(config.tokenizer),
    }
    if (out / INDEX).is_file():
        index = read_index(out)
        _refuse_other_settings(out, index.settings, settings)
        return index
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArcmaskError(f"{config.out!r} exists and is not a prepared corpus; choose a new folder")
    if out.is_mount():
        raise ArcmaskError(f"{config.out!r} is where a disk is mounted; choose a folder inside it")
    holdout = Holdout.parse(rule)
    total = _total(corpus, holdout, config)
    job = Job(config=config, corpus=corpus, holdout=holdout, total=total, settings=settings, out=out)
    read_record(job)
    return job


def _total(corpus: Corpus, holdout: Holdout, config: PrepareConfig) -> int | None:
    count, limit = corpus.count(), config.documents
    total = limit if count is None else count if limit is None else min(count, limit)
    if holdout.kind == "last":
        if total is None:
            raise ArcmaskError(
                f"{config.corpus} is streamed: for the holdout last:N set documents to its number of them"
            )
        if total <= holdout.number:
            raise ArcmaskError(f"the holdout last:{holdout.number} leaves nothing to train on out of {total} documents")
    return total


def _refuse_other_settings(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    differences = [
        f"{key} is {found.get(key)!r} there and {wanted.get(key)!r} here"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    ]
    if differences:
        raise ArcmaskError(
            f"{str(folder)!r} was prepared with other settings ({'; '.join(differences)}); "
            "choose another folder or remove that one"
        )


def read_record(job: Job) -> dict[str, Any] | None:
    """Where an earlier run was, if there was one; it must have had the same settings."""
    if (job.partial / INDEX).is_file():  # killed just before its folder was renamed
        _refuse_other_settings(job.partial, read_index(job.partial).settings, job.settings)
    try:
        record = json.loads((job.partial / PROGRESS).read_bytes())
    except FileNotFoundError:
        return None
    assert isinstance(record, dict)
    _refuse_other_settings(job.partial, record["settings"], job.settings)
    return record
