"""The command line as a user meets it: a fresh process each time."""

import os
import resource
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from evaluators import TOKENIZER
from models import small_mdlm

from arcmask import ranks
from arcmask.checkpoint import load, save
from arcmask.cli import build_parser, main
from arcmask.errors import ArcmaskError
from arcmask.model import best_device


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "arcmask", *arguments], capture_output=True, text=True, check=False)


def test_version():
    result = run("--version")
    assert result.returncode == 0
    assert version("arcmask") in result.stdout


def test_help():
    result = run("--help")
    assert result.returncode == 0
    assert "masked diffusion" in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["explore", "--help"]])
def test_torch_is_not_imported_before_it_is_needed(arguments):
    code = (
        f"import sys; sys.argv = ['arcmask', *{arguments!r}]\n"
        "from arcmask.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["reproduce", "--help"]])
def test_help_answers_in_under_a_second(arguments):
    """Of processor time, so that a busy machine does not matter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*arguments).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 1


def test_an_unknown_option_exits_non_zero():
    result = run("--no-such-option")
    assert result.returncode == 2
    assert "no-such-option" in result.stderr


def test_light_import_offers_its_modules():
    code = (
        "import arcmask, sys; assert 'torch' not in sys.modules; arcmask.feedback.OPERATORS; 'sphere' in dir(arcmask)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_command_without_its_arguments_says_what_is_missing():
    result = run("convert")
    assert result.returncode == 2
    assert result.stderr == "arcmask: arcmask convert needs SOURCE and TARGET; arcmask convert --help says more\n"


def test_bad_input_is_one_sentence(forks, tmp_path):
    for arguments, sentence in (
        (["convert", str(tmp_path / "no.ckpt"), "out"], f"arcmask: there is no file {tmp_path / 'no.ckpt'}\n"),
        (
            ["convert", "a", "b", "--weights", "x"],
            "arcmask: unknown --weights 'x'; choose one of: ema, raw\n",
        ),
        (
            ["convert", "a", "b", "--dtype", "float3"],
            "arcmask: unknown --dtype 'float3'; did you mean 'float32'? choose one of: bfloat16, float32\n",
        ),
        (["convert", "a", "b", "--wieghts", "x"], "unrecognized arguments: --wieghts x; did you mean '--weights'?\n"),
        (
            ["prepare", "a", "--out", "b"],
            "unrecognized arguments: --out b; it is given without --out, as in: arcmask prepare CORPUS OUT\n",
        ),
        (["converts"], "unknown command 'converts'; did you mean 'convert'? choose one of: convert, evaluate, explore"),
        (["train", "sotu-tiny-none", "--band", "0.3"], "argument --band: expected 2 arguments\n"),
        (["reproduce", "quickstart", "--seeds", "1", "x"], "--seeds: Expected a int. Got value: x\n"),
        (["sample", "sotu-tiny", "--device", "gpu"], "unknown device 'gpu'; did you mean 'cpu'?"),
    ):
        result = forks.run(arguments, tmp_path)
        assert (result.code, result.stdout) == (2, "")
        assert result.stderr.removeprefix("arcmask: ").startswith(sentence.removeprefix("arcmask: ")), result.stderr
        assert result.stderr.count("\n") == 1


def test_settings_come_from_a_file_and_options_go_over_it(tmp_path):
    (tmp_path / "settings.yaml").write_text("source: here\ntarget: there\nweights: raw\n")
    from_file = run("convert", "--config", str(tmp_path / "settings.yaml"), "--print-config")
    assert "weights: raw" in from_file.stdout
    assert "source: here" in from_file.stdout
    over = run("convert", "--config", str(tmp_path / "settings.yaml"), "--weights", "ema", "--print-config")
    assert "weights: ema" in over.stdout


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("reproduce quickstart --seeds 1 2 3 --arms none", {"seeds": [1, 2, 3], "arms": ["none"]}),
        ("reproduce quickstart --seeds 1,2,3 --samples 4", {"seeds": [1, 2, 3], "samples": 4}),
        (
            "reproduce quickstart --seeds=[1,2] --arms=none,linear-0.3",
            {"seeds": [1, 2], "arms": ["none", "linear-0.3"]},
        ),
        ("train sotu-tiny-none --band 0.1 0.9 --steps 3", {"band": [0.1, 0.9], "steps": 3}),
        ("train sotu-tiny-none --band=[0.1,0.9]", {"band": [0.1, 0.9]}),
        ("train sotu-tiny-none", {"band": [0.2, 0.8]}),
        ("explore x --feedback a,b.py:f linear", {"feedback": ["a,b.py:f", "linear"]}),
        ("explore x --feedback=-a", {"feedback": ["-a"]}),
        ("evaluate a,b c --kmeans-seeds 1 2 --bad-lines=skip", {"samples": ["a,b", "c"], "kmeans_seeds": [1, 2]}),
        ("prepare a b --text-key t-k --dry_run", {"text_key": "t-k", "dry_run": True}),
        ("sample x --prompt=--text-key --batch_size 3", {"prompt": "--text-key", "batch_size": 3}),
        ("sample x --device cuda:1", {"device": "cuda:1"}),
    ],
)
def test_lists_and_names_have_one_syntax(words, settings):
    recipe = "sotu-tiny-none" if words.startswith("train") else None
    namespace = build_parser(recipe).parse_args(words.split())
    values = vars(namespace[namespace.subcommand])
    assert {name: values[name] for name in settings} == settings


def test_a_list_comes_from_a_file_too(tmp_path):
    (tmp_path / "settings.yaml").write_text("band: [0.3, 0.4]\nsteps: 7\n")
    namespace = build_parser("sotu-tiny-none").parse_args(
        ["train", "sotu-tiny-none", "--config", str(tmp_path / "settings.yaml")]
    )
    assert namespace.train.band == [0.3, 0.4]
    assert namespace.train.steps == 7


def test_models_are_loaded_onto_the_device_that_is_chosen(monkeypatch, capsys):
    devices = []
    monkeypatch.setattr("arcmask.commands.sample.run", lambda _: devices.append(str(best_device())))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    for options in ([], ["--device", "cpu"], ["--device", "cuda"], ["--device", "cuda:0"], []):
        main(["sample", "x", *options])
    assert devices == ["cuda:1", "cpu", "cuda:1", "cuda:0", "cuda:1"]
    with pytest.raises(SystemExit, match="2"):
        main(["sample", "x", "--device", "cuda:2"])
    assert capsys.readouterr().err == "arcmask: the device is cuda:2, but torch finds 2 GPUs\n"


def test_completion_knows_every_command_and_option():
    pytest.importorskip("shtab")
    script = run("--print-completion", "bash").stdout
    code = "COMP_WORDS=(arcmask {}); COMP_CWORD={}; _shtab_arcmask 2> /dev/null; echo ${{COMPREPLY[@]}}"
    for words, index, completion in (("sam", 1, "sample"), ("sample --temp", 2, "--temperature")):
        result = subprocess.run(
            ["bash", "-c", f"{script}\n{code.format(words, index)}"], capture_output=True, text=True, check=True
        )
        assert result.stdout == f"{completion}\n"


def test_completion_without_shtab_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "bash"])
    assert "pip install 'arcmask[completion]'" in capsys.readouterr().err


def test_convert_prints_what_it_wrote(forks, tmp_path):
    save(small_mdlm(), tmp_path / "in")
    result = forks.run(["convert", str(tmp_path / "in"), str(tmp_path / "out.ckpt")], tmp_path)
    assert result.code == 0, result.stderr
    assert result.stdout == f"{tmp_path / 'out.ckpt'}\n"
    assert torch.equal(load(tmp_path / "out.ckpt").table, small_mdlm().table)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "sotu-tiny-none", "--steps", "100000000000"], "steps is 100000000000, but must lie between 1 and"),
        (["train", "sotu-tiny-none", "--karcher_steps", "1000000000000"], "must lie between 0 and 1,000\n"),
        (["train", "sotu-tiny-none", "--dropout=-1"], "dropout is -1.0, but must lie in [0, 1)\n"),
        (["sample", "sotu-tiny", "--num", "1000000000"], "num is 1000000000, but must lie between 0 and 10,000,000\n"),
        (["sample", "sotu-tiny", "--length", "0"], "length is 0, but must lie between 1 and"),
        (["sample", "sotu-tiny", "--budget", "1e99999999"], "the budget is '1e99999999', but must be above 0 and"),
        (["evaluate", "x", "--seed", "-1"], "seed is -1, but must lie between 0 and"),
        (["reproduce", "quickstart", "--length", "0"], "length is 0, but must lie between 1 and"),
        (["prepare", "sotu", "out", "--holdout", "every:" + "9" * 5000], "but must be every:N"),
        (["convert", "a", "\ud800"], "an argument is '\\ud800', which has a NUL character or is not valid UTF-8\n"),
        (["train", "sotu-tiny-none", "--band", "[" * 10**5], "YAML with aliases or deep nesting is not read\n"),
    ],
)
def test_absurd_settings_are_refused_at_once(arguments, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert sentence in capsys.readouterr().err


def test_top_k_beyond_the_vocabulary_is_refused_before_drawing(capsys):
    for command in (["sample", "sotu-tiny"], ["explore", "sotu-tiny", "--feedback", "none"]):
        with pytest.raises(SystemExit, match="2"):
            main([*command, "--top_k", "100"])
        assert "top_k is 100, but must lie between 1 and 28\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe\x00", "is not YAML that can be read"),
        (b"[" * 10**5, "deep nesting"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nsource: [*b, *b]\n", "aliases"),
        (b"just text", "does not hold settings by name, but a str"),
        (b'source: "\\ud800"\ntarget: x\n', "invalid Unicode"),
        (b'source: "a\\0b"\ntarget: x\n', "source is 'a\\x00b', which has a NUL character"),
    ],
)
def test_a_settings_file_that_cannot_be_read_is_one_sentence(content, reason, tmp_path, capsys):
    (tmp_path / "settings.yaml").write_bytes(content)
    with pytest.raises(SystemExit, match="2"):
        main(["convert", "--config", str(tmp_path / "settings.yaml")])
    message = capsys.readouterr().err
    assert reason in message
    assert message.count("\n") == 1


def test_a_reader_that_leaves_early_and_a_closed_output_are_no_errors():
    for end, code in (("| head -1", 0), (">&-", 0), ("> /dev/full", 2)):
        command = f"set -o pipefail; {sys.executable} -m arcmask --help {end}"
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (result.returncode, "Traceback" in result.stderr) == (code, False), result.stderr
    assert result.stderr == "arcmask: No space left on device\n"


@pytest.mark.parametrize(
    "variables", [{"RANK": "abc"}, {"WORLD_SIZE": "0"}, {"RANK": "1"}, {"RANK": "-1", "WORLD_SIZE": "2"}, {"RANK": ""}]
)
def test_ranks_are_checked(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArcmaskError, match=r"variable (RANK|WORLD_SIZE) is .*, but must be a number from"):
        ranks.rank()


def test_ranks_of_torchrun(monkeypatch):
    assert (ranks.rank(), ranks.local_rank(), ranks.world_size()) == (0, 0, 1)
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    assert (ranks.rank(), ranks.local_rank(), ranks.world_size()) == (3, 1, 4)


def test_samples_reach_a_terminal_without_escape_sequences_and_a_file_as_they_are(tmp_path, monkeypatch):
    model = small_mdlm(vocab_size=TOKENIZER.size)
    model.tokenizer = TOKENIZER
    save(model, tmp_path / "model")
    words = ["sample", str(tmp_path / "model"), "--length", "8", "--steps", "1", "--prompt", "a\x1b[2J\tb"]
    reader, writer = os.openpty()
    with open(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        main(words)
        assert os.read(reader, 1000).startswith(b"a\\x1b[2J\tb")
    with (tmp_path / "file").open("w+") as file:
        monkeypatch.setattr(sys, "stdout", file)
        main(words)
        file.seek(0)
        assert file.read().startswith("a\x1b[2J\tb")
