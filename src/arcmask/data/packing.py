"""Preparation of a corpus: documents in, a folder of rows of token ids out.

All work is done in OUT.partial, which is renamed to OUT when it is complete. A record after every few million tokens
says where to resume. The result depends on the corpus and the settings alone, not on how often the work was
interrupted.
"""

import io
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arcmask.data.corpora import Corpus
from arcmask.data.job import PROGRESS, Document, Job, open_job, parts_to_fetch, read_record, record_hash
from arcmask.data.prepared import FREQUENCIES, INDEX, PADDED, SPLITS, STREAM, TOKENIZER, Index, Split, read_index
from arcmask.data.split_writer import SplitWriter
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
_Encoded = tuple[list[Document], list[NDArray[np.uint32]], list[int]]  # the last: tokens of the prompts


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
    around += ", a document in each" if config.pack == "none" else ""
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
    enclosing = tokenizer.row_ends if job.is_enclosed else None
    pad_id = tokenizer.pad_id if job.is_padded else None
    writers = {name: SplitWriter(job.partial, name, **sizes, enclosing=enclosing, pad_id=pad_id) for name in SPLITS}
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
            text = document.prompt + document.text
            yield text[:left]
            left -= len(text)
            if left <= 0:
                return


def _write_rows(job: Job, tokenizer: Tokenizer, writers: dict[str, SplitWriter], start: int) -> None:
    """Encode the documents from `start` on and append them; save a record from time to time."""
    every = min(_RECORD_EVERY, job.config.length * job.config.rows_per_shard)
    is_text8 = tokenizer.name == "text8"  # a token is a byte of the text8 form
    unrecorded, done = 0, start
    with Progress("preparing", unit="documents", total=job.total, done=start) as progress:
        for chunk, encoded, prompts in _encoded(job, tokenizer, start):
            filled = [entry for entry in zip(chunk, encoded, prompts, strict=True) if entry[1].size]
            for name, writer in writers.items():
                part = [entry for entry in filled if job.split_of(entry[0].number) == name]
                for document, _, prompt in part:
                    _check_prompt(job, document, prompt, writer.room)
                text_bytes = sum(ids.size - given if is_text8 else document.bytes for document, ids, given in part)
                writer.add([ids for _, ids, _ in part], text_bytes, [given for _, _, given in part])
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
        # A row of its own needs no end-of-text before [SEP].
        ids = tokenizer.encode_documents(
            [document.text for document in chunk], with_end=not (job.is_padded and job.is_enclosed)
        )
        if not any(document.prompt for document in chunk):
            return chunk, ids, [0] * len(chunk)
        prompts = [np.asarray(prompt, np.uint32) for prompt in tokenizer.encode_batch([d.prompt for d in chunk])]
        joined = [np.concatenate([a, b]) if b.size else b for a, b in zip(prompts, ids, strict=True)]
        return chunk, joined, [prompt.size for prompt in prompts]

    with ThreadPoolExecutor(max_workers=1) as background:
        ahead: Future[_Encoded] | None = None
        for chunk in _chunks(job.documents(start)):
            ahead, ready = background.submit(encode, chunk), ahead
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()


def _check_prompt(job: Job, document: Document, prompt: int, room: int) -> None:
    """Raise if a prompt leaves no place for its response."""
    if prompt >= room:
        longer = job.config.length + prompt + 1 - room
        raise ArcmaskError(
            f"document {document.number} of {job.config.corpus} has a prompt of {prompt} tokens, but a row has "
            f"{job.config.length}; give --length {longer} or more"
        )


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += document.bytes + len(document.prompt) + 1
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
            where = f"the {name} documents of {job.config.corpus!r} (holdout {job.settings['holdout']})"
            if job.is_padded:
                raise ArcmaskError(f"{where} have no text; give more text")
            raise ArcmaskError(
                f"{where} have only {split.dropped_tokens} tokens, too few for a row of {job.config.length}; "
                f"{_advice(job, name, splits)}"
            )
    frequencies = io.BytesIO()
    np.save(frequencies, writers["train"].frequencies)
    write_whole(job.partial / FREQUENCIES, frequencies.getvalue())
    paths = sorted((job.partial / TOKENIZER).iterdir())
    index = Index(
        format=PADDED if job.is_padded else STREAM,
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
        pad_id=tokenizer.pad_id if job.is_padded else None,
    )
    write_whole(job.partial / INDEX, index.to_bytes())


@contextmanager
def _os_errors_as_sentences(config: PrepareConfig) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = "" if error.filename is None else f" at {str(error.filename)!r}"
        raise ArcmaskError(f"preparing {config.out!r} stopped{where}: {disk_error(error)}") from error
