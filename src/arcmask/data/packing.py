"""Preparation of a corpus: documents in, a folder of rows of token ids out.

All work is done in OUT.partial, which is renamed to OUT when it is complete. A record after every few million tokens
says where to resume. The result depends on the corpus and the settings alone, not on how often the work was
interrupted. `SplitWriter` keeps no file open and an incomplete row in memory, so the files and a small record of its
position are enough to resume.
"""

import io
import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcmask.data.corpora import Corpus
from arcmask.data.job import PROGRESS, Document, Job, open_job, parts_to_fetch, read_record, record_hash
from arcmask.data.prepared import FORMAT, FREQUENCIES, INDEX, SPLITS, TOKENIZER, Index, Shard, Split, read_index
from arcmask.data.tokenizers import Tokenizer, bpe_size, open_tokenizer, train_bpe
from arcmask.errors import ArcmaskError
from arcmask.files import (
    UNFINISHED,
    disk_error,
    flush,
    hash_file,
    remove_unfinished,
    removed_if_empty,
    sampled_hash,
    sha256,
    write_whole,
)
from arcmask.progress import Progress
from arcmask.ranks import rank
from arcmask.run_folder import LOCK, locked
from arcmask.settings.prepare import PrepareConfig

_CHUNK = 1 << 21  # bytes of text that are encoded at a time: enough for every core, and little memory
_RECORD_EVERY = 1 << 23  # tokens between two records, at most
# Characters that a tokenizer is trained on, at most: its word counts must fit in memory, and more text changes little.
_BPE_CHARACTERS = 1 << 30
_Encoded = tuple[list[Document], list[NDArray[np.uint32]]]


class SplitWriter:
    """Append tokens to `NAME-00000.bin`, `NAME-00001.bin`, …, of `shard_rows` rows each, and count them.

    `enclosing` are two ids to put around each row; they are part of its length.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        length: int,
        shard_rows: int,
        vocab_size: int,
        enclosing: tuple[int, int] | None = None,
    ) -> None:
        self.folder, self.name, self.length, self.shard_rows = folder, name, length, shard_rows
        self._enclosing = enclosing
        self.dtype = np.dtype("uint16" if vocab_size <= 1 << 16 else "uint32").newbyteorder("<")
        self.frequencies = np.zeros(vocab_size, dtype=np.int64)
        self.documents = self.text_bytes = self.rows = 0
        self._carry = np.zeros(0, dtype=self.dtype)
        self._unflushed: set[Path] = set()

    def add(self, documents: list[NDArray[np.uint32]], text_bytes: int) -> None:
        """Append whole documents. `text_bytes` is the size of their text."""
        self.documents += len(documents)
        self.text_bytes += text_bytes
        stream = np.concatenate([self._carry, *(document.astype(self.dtype) for document in documents)])
        width = self.length - (0 if self._enclosing is None else 2)
        whole = stream.size // width * width
        self._carry = stream[whole:].copy()
        rows = stream[:whole].reshape(-1, width)
        if self._enclosing is not None:
            begin, end = np.asarray(self._enclosing, dtype=self.dtype)
            rows = np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (begin, end)))
        while len(rows):
            room = self.shard_rows - self.rows % self.shard_rows
            self._append(rows[:room])
            rows = rows[room:]

    def _append(self, rows: NDArray[Any]) -> None:
        """Append rows that fit into the current shard."""
        path = self._path(self.rows // self.shard_rows)
        with path.open("ab") as file:
            file.write(rows.tobytes())
        self._unflushed.add(path)
        self.frequencies += np.bincount(rows.ravel(), minlength=self.frequencies.size)
        self.rows += len(rows)

    def _shards(self) -> dict[Path, int]:
        """Return the number of rows in each shard file."""
        starts = range(0, self.rows, self.shard_rows)
        return {self._path(i): min(self.shard_rows, self.rows - start) for i, start in enumerate(starts)}

    def _path(self, shard: int) -> Path:
        return self.folder / f"{self.name}-{shard:05d}.bin"

    def record(self) -> dict[str, Any]:
        """Flush the files to the disk and return the writer's position."""
        self._flush()
        return {
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "rows": self.rows,
            "carry": self._carry.tolist(),
            "frequencies": self.frequencies.tolist(),
        }

    def go_back_to(self, record: dict[str, Any]) -> None:
        """Return to a recorded position. Whatever was written after it is cut off."""
        self.documents, self.text_bytes, self.rows = record["documents"], record["text_bytes"], record["rows"]
        self._carry = np.asarray(record["carry"], dtype=self.dtype)
        self.frequencies = np.asarray(record["frequencies"], dtype=np.int64)
        shards = self._shards()
        for path in set(self.folder.glob(f"{self.name}-*.bin")) - set(shards):
            path.unlink()
        for path, rows in shards.items():
            size = rows * self.length * self.dtype.itemsize
            if not path.is_file() or path.stat().st_size < size:
                raise ArcmaskError(f"{str(path)!r} is shorter than its record says; remove {str(self.folder)!r}")
            os.truncate(path, size)

    def _flush(self) -> None:
        while self._unflushed:
            flush(self._unflushed.pop())

    def finish(self) -> Split:
        """Flush everything to the disk and return what was written. Tokens that fill no row are dropped."""
        self._flush()
        return Split(
            rows=self.rows,
            tokens=self.rows * self.length,
            dropped_tokens=self._carry.size,
            documents=self.documents,
            text_bytes=self.text_bytes,
            shards=tuple(
                Shard(name=path.name, rows=rows, sha256=hash_file(path).hexdigest())
                for path, rows in self._shards().items()
            ),
        )


def prepare(config: PrepareConfig, corpus: Corpus | None = None) -> Index:
    """Prepare a corpus, or what is left of it, and return its index. A complete folder is left alone.

    `corpus` is used in place of the one that the settings name.
    """
    if rank() > 0:  # under torchrun the first rank does the work
        while not (Path(config.out).expanduser() / INDEX).is_file():
            time.sleep(0.2)
    with _os_errors_as_sentences(config):
        job = open_job(config, corpus)
        out = Path(config.out).expanduser().absolute()
        lock = out.with_name(f".{out.name}{LOCK}")  # beside the folder, which is renamed
        if isinstance(job, Index):
            with suppress(OSError):  # killed after the folder was renamed
                lock.unlink()
            return job
        tokenizer = _check_first_document(job)
        with removed_if_empty(job.out.parent), locked(lock, holder=repr(str(job.partial))):
            try:
                job.partial.mkdir(exist_ok=True)
                _finish(job, tokenizer)
            finally:
                lock.unlink(missing_ok=True)
        return read_index(job.out)


def describe_job(config: PrepareConfig) -> str:
    """Describe in one sentence what `prepare` would do, after its first checks; nothing is fetched or written."""
    done, count, enclosing = "", "the", None
    with _os_errors_as_sentences(config):
        missing = parts_to_fetch(config)
        if not missing:
            job = open_job(config)
            if isinstance(job, Index):
                return f"{config.out} is complete; there is nothing to do"
            tokenizer = _check_first_document(job)
            enclosing = None if tokenizer is None else tokenizer.enclosing
            count = "an unknown number of" if job.total is None else str(job.total)
            record = read_record(job)
            done = f", resuming at document {record['next_document']}" if record else ""
            config = replace(config, row_form=job.settings["row_form"])
    ends = "two end-of-text tokens" if enclosing is None else "[CLS] and [SEP]"
    around = f" between {ends}" if config.row_form == "enclosed" else ""
    fetched = f"fetch {' and '.join(missing)}; " if missing else ""
    return (
        f"{fetched}prepare {count} documents of {config.corpus} with {config.tokenizer} as rows of {config.length} "
        f"tokens in {config.out}{around}, holding out {config.holdout_rule}{done}"
    )


def _check_first_document(job: Job) -> Tokenizer | None:
    """Open the corpus and the tokenizer before anything is written. None for a tokenizer that is yet to be trained."""
    if next(job.documents(0), None) is None:
        raise ArcmaskError(f"the corpus {job.config.corpus!r} is empty")
    return None if job.config.tokenizer.startswith("bpe:") else open_tokenizer(job.config.tokenizer)


def _finish(job: Job, tokenizer: Tokenizer | None) -> None:
    """Do what is left of the work and rename OUT.partial to OUT."""
    if (job.out / INDEX).is_file():  # another process finished it in the meantime
        shutil.rmtree(job.partial, ignore_errors=True)
        return
    remove_unfinished(job.partial)
    if not (job.partial / INDEX).is_file():
        _fill(job, tokenizer)
    (job.partial / PROGRESS).unlink(missing_ok=True)
    flush(job.partial)
    job.partial.rename(job.out)
    flush(job.out.parent)


def _fill(job: Job, tokenizer: Tokenizer | None) -> None:
    """Write the tokenizer, the rows and the index into OUT.partial, from the last record on."""
    record = read_record(job)
    if record is None:
        _save_record(job, 0, {})
        record = {"next_document": 0, "splits": {}}
    with _removed_if_useless(job):
        tokenizer = _saved_tokenizer(job, tokenizer)
    sizes = {"length": job.config.length, "shard_rows": job.config.rows_per_shard, "vocab_size": tokenizer.size}
    enclosing = tokenizer.row_ends if job.settings["row_form"] == "enclosed" else None
    writers = {name: SplitWriter(job.partial, name, **sizes, enclosing=enclosing) for name in SPLITS}
    for name, writer in writers.items():
        writer.go_back_to(record["splits"].get(name, writer.record()))
    with _removed_if_useless(job):
        _write_rows(job, tokenizer, writers, record["next_document"])
        _write_index(job, tokenizer, writers)


@contextmanager
def _removed_if_useless(job: Job) -> Iterator[None]:
    """Remove OUT.partial if the corpus or the settings are at fault: no later run can use it."""
    try:
        yield
    except ArcmaskError as error:
        if disk_error(error) is None:
            shutil.rmtree(job.partial)
        raise


def _saved_tokenizer(job: Job, tokenizer: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer, trained if it must be, after its files are in the folder."""
    folder = job.partial / TOKENIZER
    if folder.is_dir():
        return tokenizer or open_tokenizer(folder)
    if tokenizer is None:
        tokenizer = train_bpe(_training_texts(job), bpe_size(job.config.tokenizer))
    unfinished = folder.with_name(folder.name + UNFINISHED)
    tokenizer.save(unfinished)
    unfinished.rename(folder)
    flush(job.partial)
    return tokenizer


def _training_texts(job: Job) -> Iterator[str]:
    left = _BPE_CHARACTERS
    for document in job.documents(0):
        if job.split_of(document.number) == "train":
            yield document.text[:left]
            left -= len(document.text)
            if left <= 0:
                return


def _write_rows(job: Job, tokenizer: Tokenizer, writers: dict[str, SplitWriter], start: int) -> None:
    """Encode the documents from `start` on and append them; save a record from time to time."""
    every = min(_RECORD_EVERY, job.config.length * job.config.rows_per_shard)
    is_text8 = tokenizer.name == "text8"  # a token is a byte of the text8 form
    unrecorded, done = 0, start
    with Progress("preparing", unit="documents", total=job.total, done=start) as progress:
        for chunk, encoded in _encoded(job, tokenizer, start):
            pairs = [(document, ids) for document, ids in zip(chunk, encoded, strict=True) if ids.size]
            for name, writer in writers.items():
                part = [(document, ids) for document, ids in pairs if job.split_of(document.number) == name]
                text_bytes = sum(ids.size if is_text8 else document.bytes for document, ids in part)
                writer.add([ids for _, ids in part], text_bytes)
            done = chunk[-1].number + 1
            unrecorded += sum(ids.size for ids in encoded)
            progress.advance(len(chunk))
            if unrecorded >= every:
                _save_record(job, done, writers)
                unrecorded = 0
    if job.holdout.kind == "last" and done != job.total:
        raise ArcmaskError(
            f"{job.config.corpus} ended after {done} documents; for the holdout last:N set documents to that"
        )


def _encoded(job: Job, tokenizer: Tokenizer, start: int) -> Iterator[_Encoded]:
    """Yield chunks of documents with their ids. While one is written, the next one is encoded on all cores."""

    def encode(chunk: list[Document]) -> _Encoded:
        return chunk, tokenizer.encode_documents([document.text for document in chunk])

    with ThreadPoolExecutor(max_workers=1) as background:
        ahead: Future[_Encoded] | None = None
        for chunk in _chunks(job.documents(start)):
            ahead, ready = background.submit(encode, chunk), ahead
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += document.bytes + 1
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _save_record(job: Job, next_document: int, writers: dict[str, SplitWriter]) -> None:
    splits = {name: writer.record() for name, writer in writers.items()}
    record = {"settings": job.settings, "source": job.corpus.source(), "next_document": next_document, "splits": splits}
    write_whole(job.partial / PROGRESS, json.dumps(record | {"hash": record_hash(record)}).encode())


def _advice(job: Job, name: str, splits: dict[str, Split]) -> str:
    """Return which option to change, and to what, if a split has too few tokens for one row."""
    length, number, tokens = job.config.length, job.holdout.number, splits[name].dropped_tokens
    total = sum(split.tokens + split.dropped_tokens for split in splits.values())
    documents = sum(split.documents for split in splits.values())
    advice = []
    if name == "validation" and job.holdout.kind == "every":
        fewer = min(2 * total // (3 * length), documents)  # half a row more than one, since documents differ
        advice += [f"--holdout every:{fewer}"] if 2 <= fewer < number else []
    if name == "validation" and job.holdout.kind == "last":
        more = -(-3 * length * number // (2 * max(1, tokens)))
        advice += [f"--holdout last:{more}"] if more <= documents // 2 else []
    shorter = 1 << max(0, tokens.bit_length() - 1)
    advice += [f"--length {shorter}"] if shorter >= 8 else []
    return f"give {' or '.join(advice) or 'more text'}"


def _write_index(job: Job, tokenizer: Tokenizer, writers: dict[str, SplitWriter]) -> None:
    """Write the last file. Its presence says that all others are complete."""
    splits = {name: writer.finish() for name, writer in writers.items()}
    for name, split in splits.items():
        if split.rows == 0 and (name == "train" or job.holdout.kind != "none"):
            raise ArcmaskError(
                f"the {name} documents of {job.config.corpus!r} (holdout {job.settings['holdout']}) have only "
                f"{split.dropped_tokens} tokens, too few for a row of {job.config.length}; {_advice(job, name, splits)}"
            )
    frequencies = io.BytesIO()
    np.save(frequencies, writers["train"].frequencies)
    write_whole(job.partial / FREQUENCIES, frequencies.getvalue())
    paths = sorted((job.partial / TOKENIZER).iterdir())
    index = Index(
        format=FORMAT,
        settings=job.settings,
        tokenizer=tokenizer.name,
        tokenizer_files={path.name: hash_file(path).hexdigest() for path in paths},
        vocab_size=tokenizer.size,
        mask_id=tokenizer.mask_id,
        end_id=tokenizer.end_id,
        length=job.config.length,
        dtype=writers["train"].dtype.name,
        shard_rows=job.config.rows_per_shard,
        splits=splits,
        frequencies_sha256=sha256(frequencies.getvalue()),
        sampled={
            shard.name: sampled_hash(job.partial / shard.name) for split in splits.values() for shard in split.shards
        },
        source=job.corpus.source(),
    )
    write_whole(job.partial / INDEX, index.to_bytes())


@contextmanager
def _os_errors_as_sentences(config: PrepareConfig) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if error.filename is None else f" at {str(error.filename)!r}"
        raise ArcmaskError(f"preparing {config.out!r} stopped{where}: {disk_error(error)}") from error
