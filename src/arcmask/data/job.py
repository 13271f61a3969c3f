"""The work of `prepare`: its settings, checked against the corpus, the folder and the work already done.

It reads what earlier runs recorded. It encodes and writes nothing.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from arcmask.data.corpora import NAMED, Corpus, Pair, open_corpus
from arcmask.data.prepared import INDEX, Index, partial_of, read_index
from arcmask.data.row_corpus import RowForm
from arcmask.data.tokenizers import bpe_size, has_own_kind, open_tokenizer, tokenizer_identity
from arcmask.downloads import NotFetchedError, to_fetch
from arcmask.errors import ArcmaskError
from arcmask.files import sha256, writable
from arcmask.run_folder import read_settings, refuse_other_settings
from arcmask.settings.prepare import Holdout, PrepareConfig

PROGRESS = "progress.json"
_EARLIER = {"row_form": "stream"}  # what folders of earlier versions do not record


class Document(NamedTuple):
    """A document, its number in the corpus (from 0), its length in UTF-8, and the prompt before it, if it has one."""

    number: int
    text: str
    bytes: int
    prompt: str = ""


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

    @property
    def is_padded(self) -> bool:
        """Whether each document is a row of its own."""
        return self.config.pack == "none"

    @property
    def is_enclosed(self) -> bool:
        """Whether rows have [CLS] and [SEP], or end-of-text, around them."""
        return self.settings.get("row_form") == "enclosed"

    def documents(self, start: int) -> Iterator[Document]:
        """Yield the documents from number `start` on."""
        limit = self.config.documents
        texts = islice(self.corpus.documents(start), None if limit is None else max(0, limit - start))
        for number, text in enumerate(texts, start):
            prompt, text = text if isinstance(text, Pair) else ("", text)
            if prompt and not self.is_padded:
                raise ArcmaskError(f"{self.config.corpus} has prompts and responses, which need --pack none")
            try:
                prompt.encode()
                yield Document(number, text, len(text.encode()), prompt)
            except UnicodeEncodeError as error:
                where = f"document {number} of {self.config.corpus}"
                raise ArcmaskError(f"{where} is not valid Unicode: {error.reason}") from error

    def refuse_others(self, folder: Path, settings: dict[str, Any], source: dict[str, str]) -> None:
        """Raise if a folder was prepared with other settings, or before the corpus was edited."""
        _refuse_others(folder, settings, self.settings)
        _refuse_edited(folder, self.config, self.corpus, source)

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
    if (out / INDEX).is_file():
        return _open_finished(config, out, corpus)
    corpus = corpus or open_corpus(config.corpus, text_key=config.text_key, streaming=config.streaming)
    settings = _settings(config, corpus.identity, _row_form(config), tokenizer_identity(config.tokenizer))
    holdout = Holdout.parse(config.holdout_rule)
    job = Job(config=config, corpus=corpus, holdout=holdout, total=None, settings=settings, out=out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArcmaskError(f"{config.out!r} exists and is not a prepared corpus; choose a new folder")
    if out.is_mount():
        raise ArcmaskError(f"{config.out!r} is where a disk is mounted; choose a folder inside it")
    writable(job.partial, is_folder=True)
    job = replace(job, total=_total(corpus, holdout, config))
    read_record(job)
    return job


def parts_to_fetch(config: PrepareConfig) -> list[str]:
    """Return what `prepare` would fetch, and how large it is: a corpus, a tokenizer. Nothing is fetched."""
    if (Path(config.out).expanduser() / INDEX).is_file():
        return []
    finders: list[Callable[[], object]] = []
    if config.corpus.startswith("hub:") or config.corpus in NAMED:
        finders.append(partial(open_corpus, config.corpus, text_key=config.text_key, streaming=True))
    if not config.tokenizer.startswith("bpe:"):
        finders.append(partial(open_tokenizer, config.tokenizer))
    return to_fetch(*finders)


def rows_to_come(config: PrepareConfig) -> RowForm | None:
    """Return the form of the rows that a preparation would make; None if its tokenizer is yet to be fetched."""
    tokenizer = None
    if not config.tokenizer.startswith("bpe:"):
        try:
            tokenizer = open_tokenizer(config.tokenizer)
        except NotFetchedError:
            return None
    size = bpe_size(config.tokenizer) if tokenizer is None else tokenizer.size
    return RowForm(
        source=config.out,
        length=config.length,
        vocab_size=size,
        mask_id=size - 1 if tokenizer is None else tokenizer.mask_id,
        tokenizer_name=config.tokenizer if tokenizer is None else tokenizer.name,
        tokenizer=tokenizer,
        is_padded=config.pack == "none",
    )


def _open_finished(config: PrepareConfig, out: Path, corpus: Corpus | None) -> Index:
    """Return the index of a finished folder if it has these settings. It needs neither its corpus nor its tokenizer.

    Files of the corpus that are there are compared with those that were prepared. The hub is not asked.
    """
    index = read_index(out)
    stored = index.settings
    corpus = corpus or _files_of(config, stored["corpus"])
    is_same = corpus is None and _name(stored["corpus"]) == _name(config.corpus)
    identity = stored["corpus"] if is_same else config.corpus if corpus is None else corpus.identity
    tokenizer = tokenizer_identity(config.tokenizer)
    if not Path(config.tokenizer).exists() and _name(stored["tokenizer"]) == f"folder:{_name(config.tokenizer)}":
        tokenizer = stored["tokenizer"]
    row_form = config.row_form or stored.get("row_form", _EARLIER["row_form"])
    _refuse_others(out, stored, _settings(config, identity, row_form, tokenizer))
    if corpus is not None:
        _refuse_edited(out, config, corpus, index.source)
    return index


def _files_of(config: PrepareConfig, identity: str) -> Corpus | None:
    """Open a corpus of files to compare; None if it is on the hub, or if files with the name in `identity` are gone."""
    if config.corpus.startswith("hub:"):
        return None
    try:
        return open_corpus(config.corpus, text_key=config.text_key)
    except ArcmaskError:
        if _name(identity) != _name(config.corpus):
            raise
        return None


def _name(spec: str) -> str:
    """Return the name in an identity, or of a path that identities are made of: its last part."""
    name = spec.partition(" with files ")[0]
    return name if name.startswith(("hub:", "folder:")) else Path(name).expanduser().resolve().name


def _refuse_others(folder: Path, stored: dict[str, Any], settings: dict[str, Any]) -> None:
    # Earlier versions recorded neither the form of rows nor the kind of text.
    refuse_other_settings(folder, _EARLIER | {"kind": settings["kind"]} | stored, settings)


def _refuse_edited(folder: Path, config: PrepareConfig, corpus: Corpus, source: dict[str, str]) -> None:
    if not corpus.matches(source):
        raise ArcmaskError(f"{config.corpus} was edited since {folder} was begun; give another folder")


def _row_form(config: PrepareConfig) -> str:
    """Return the form of the rows: the one that is given, or what suits the tokenizer."""
    own = has_own_kind(config.tokenizer)
    if config.row_form == "stream" or (own and config.row_form is None):
        return "stream"
    if own:
        is_possible, around = config.tokenizer != "text8", "end-of-text"
    else:
        tokenizer = open_tokenizer(config.tokenizer)
        around = "end-of-text" if tokenizer.enclosing is None else "[CLS] and [SEP]"
        is_possible = (tokenizer.enclosing if config.row_form is None else tokenizer.row_ends) is not None
    if config.row_form == "enclosed" and not is_possible:
        raise ArcmaskError(
            f"row_form is enclosed, but the tokenizer {config.tokenizer} has neither [CLS] and [SEP] nor end-of-text"
        )
    if is_possible and config.length < 3:
        raise ArcmaskError(f"length is {config.length}, but a row with {around} needs at least 3 tokens")
    return "enclosed" if is_possible else "stream"


def _settings(config: PrepareConfig, corpus: str, row_form: str, tokenizer: str) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "documents": config.documents,
        "holdout": config.holdout_rule,
        "kind": config.text_kind,
        "length": config.length,
        "row_form": row_form,
        "shard_rows": config.rows_per_shard,
        "text_key": config.text_key,
        "tokenizer": tokenizer,
        # Folders of streams have no such entry: earlier versions wrote them too.
        **({} if config.pack == "stream" else {"pack": config.pack}),
    }


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
