"""A model and a corpus that do not fit each other are refused by every command, and by its dry run as by its run."""

import shutil
from pathlib import Path

import pytest
from models import small_mdlm

from arcmask.checkpoint import save
from arcmask.cli import main
from arcmask.data import PrepareConfig, open_prepared, prepare

TRAIN = "train sotu-tiny-spherical --init model --steps 1 --batch_size 2 --micro_batch 2 --validate_every 0 --run out"
REPRODUCE = "reproduce quickstart --base model --length 16 --steps 1 --batch_size 2 --micro_batch 2 --run out"
COMMANDS = [
    TRAIN,
    f"{TRAIN} --dry-run",
    "evaluate --checkpoint model --out out.json",
    "evaluate --checkpoint model --out out.json --dry-run",
    "tune model --out out --rows 4 --held_out_rows 2",
    "inspect model --only angles --tokens 32 --out out",
    f"{REPRODUCE}",
    f"{REPRODUCE} --dry-run",
]


@pytest.fixture(scope="module")
def material(tmp_path_factory) -> Path:
    """A model, the corpus that fits it, and corpora that differ in one thing each."""
    folder = tmp_path_factory.mktemp("fit")
    texts = {"first": "the cat sat on a mat and ran off", "second": "my big dogs swim over yellow huts by jove"}
    for name, text in texts.items():
        (folder / f"{name}.jsonl").write_text(
            "".join(f'{{"text": "{" ".join(text.split()[i % 5 :])} {text}"}}\n' for i in range(60))
        )
    kinds = {"fits": ("first", "bpe:270", 16), "tokenizer": ("second", "bpe:270", 16)}
    kinds |= {"vocabulary": ("first", "bpe:275", 16), "length": ("first", "bpe:270", 32)}
    kinds |= {"mask": ("first", "text8", 16)}
    for name, (text, tokenizer, length) in kinds.items():
        corpus = str(folder / f"{text}.jsonl")
        prepare(
            PrepareConfig(corpus=corpus, out=str(folder / name), tokenizer=tokenizer, length=length, holdout="every:5")
        )
    model = small_mdlm(vocab_size=270)
    model.tokenizer = open_prepared(folder / "fits").tokenizer()
    save(model, folder / "model")
    return folder


@pytest.fixture
def here(material, tmp_path, monkeypatch) -> Path:
    shutil.copytree(material, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("tokenizer", "was made with another tokenizer (bpe:270) than the model's (bpe:270): their ids stand for"),
        ("vocabulary", "has 275 token ids (bpe:275), but the model knows 270"),
        ("length", "has rows of 32 tokens, but the model takes 16 at most"),
        ("mask", "has the mask id 27 (text8), but the model's is 269"),
    ],
)
def test_what_does_not_fit_is_refused_by_every_command_and_writes_nothing(here, capsys, command, data, reason):
    before = sorted(here.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--data", data])
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert sorted(here.rglob("*")) == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "command",
    ["train owt-continue-linear --run out", "train owt-continue-linear --dry-run", "reproduce paper --dry-run"],
)
def test_what_does_not_fit_the_released_model_is_refused_before_it_is_fetched(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--data", "fits"])
    assert stop.value.code == 2
    assert "has the mask id 269 (bpe:270), but the model's is 50257" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--dry-run" in command])
def test_what_fits_is_described(here, capsys, command):
    before = sorted(here.rglob("*"))
    main([*command.split(), "--data", "fits"])
    assert capsys.readouterr().out
    assert sorted(here.rglob("*")) == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--top_k 271", "top_k is 271, but must lie between 1 and 270"),
        ("--band [0.8,0.2]", "the band is (0.8, 0.2), but must be two rising numbers"),
        ("--run first.jsonl", "cannot write to first.jsonl"),
        ("--run model/config.json/x", "cannot write to model/config.json/x"),
        ("--run fits --resume false", "the run fits exists already, and resume is false"),
        ("--init new:huge", "unknown model size 'huge'"),
        ("--init missing.ckpt", "there is no file missing.ckpt"),
        ("--batch_size 6 --micro_batch 4", "6 sequences cannot be cut evenly into micro-batches of 4"),
        ("--scale 0.1 --centre auto", "the scale 0.1 cannot have the mean 0.135"),
    ],
)
def test_a_dry_run_makes_the_checks_of_the_run(capsys, options, reason, is_dry):
    dry = ["--dry-run"] if is_dry else []
    with pytest.raises(SystemExit) as stop:
        main([*TRAIN.split(), "--data", "fits", *options.split(), *dry])
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--length 17", "length is 17, but model takes at most 16 positions"),
        ("--batch_size 6 --micro_batch 4", "6 sequences cannot be cut evenly into micro-batches of 4"),
        ("--run model", "model is not empty and has no plan.json"),
        ("--run first.jsonl", "first.jsonl"),
        ("--samples 2 --features gpt2-large", "MAUVE needs"),
        ("--operators first.py:f", "first.py"),
    ],
)
def test_a_dry_run_of_an_experiment_makes_the_checks_of_the_run(capsys, options, reason, is_dry, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit) as stop:
        main([*REPRODUCE.split(), "--data", "fits", *options.split(), *(["--dry-run"] if is_dry else [])])
    assert stop.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize("command", [REPRODUCE, TRAIN])
def test_the_fit_is_checked_before_the_data_of_a_recipe_are_prepared(capsys, command, is_dry):
    with pytest.raises(SystemExit):
        main([*command.split(), *(["--dry-run"] if is_dry else [])])
    assert "has the mask id 27 (text8), but the model's is 269" in capsys.readouterr().err
    assert not Path("data").exists()


@pytest.mark.usefixtures("here")
def test_a_dry_run_checks_the_settings_before_the_data_exist(capsys):
    with pytest.raises(SystemExit):
        main(["train", "sotu-tiny-spherical", "--band", "[0.8, 0.2]", "--dry-run"])
    assert "the band is (0.8, 0.2)" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_dry_run_of_few_rows_measures_those(capsys):
    main([*TRAIN.split(), "--data", "fits", "--batch_size", "4096", "--micro_batch", "4096", "--dry-run"])
    assert "feedback starts with centre" in capsys.readouterr().out
