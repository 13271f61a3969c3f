"""Code that comes with a tokenizer or a model is never run, even if "y" waits on standard input."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from evaluators import TOKENIZER, small_gpt2
from transformers import BertConfig, BertForMaskedLM

import arcmask
from arcmask.checkpoint import load
from arcmask.data import open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.evaluation import open_evaluator

CODE = """
from pathlib import Path
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

Path(r"{mark}").write_text("the code of the folder ran")


class Config(GPT2Config):
    model_type = "strange"


class CausalLM(GPT2LMHeadModel):
    config_class = Config


class MaskedLM(BertForMaskedLM):
    config_class = Config


class Tokenizer(PreTrainedTokenizerFast):
    pass
"""
AUTO_MAP = {
    "AutoConfig": "code.Config",
    "AutoModelForCausalLM": "code.CausalLM",
    "AutoModelForMaskedLM": "code.MaskedLM",
}


def change(path: Path, **settings: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.fixture
def mark(tmp_path):
    """The file that the folders' code would write."""
    return tmp_path / "mark"


@pytest.fixture
def tokenizer(tmp_path, mark):
    """A tokenizer whose class is in its folder."""
    folder = tmp_path / "tokenizer"
    TOKENIZER.inner.save_pretrained(folder)
    (folder / "code.py").write_text(CODE.format(mark=mark))
    auto_map = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
    change(folder / "tokenizer_config.json", tokenizer_class="StrangeTokenizer", auto_map=auto_map)
    return folder


def bert() -> BertForMaskedLM:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=TOKENIZER.size, **sizes))


@pytest.fixture
def model(request, tmp_path, mark):
    """A causal or a masked LM of a type that only the code in its folder opens, with an ordinary tokenizer."""
    folder = tmp_path / request.param
    (small_gpt2() if request.param == "causal" else bert()).save_pretrained(folder)
    TOKENIZER.inner.save_pretrained(folder)
    (folder / "code.py").write_text(CODE.format(mark=mark))
    change(folder / "config.json", model_type="strange", architectures=["Strange"], auto_map=AUTO_MAP)
    return folder


@pytest.fixture
def run(forks, tmp_path) -> Callable[..., str]:
    """A function that runs a command with "y" on standard input, and returns its error message, one sentence."""

    def run(*arguments: object) -> str:
        result = forks.run([*map(str, arguments)], tmp_path, stdin="y\n" * 9)
        assert result.code == 2, result.stderr
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1, result.stderr
        return result.stderr

    return run


def test_every_call_that_opens_a_pretrained_thing_forbids_remote_code():
    calls = [
        (path, call)
        for path in Path(arcmask.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("from_pretrained", "from_config")
        and ast.unparse(call.func.value) != "super()"  # MDLM's own, which passes on what its caller says
    ]
    assert len(calls) >= 4
    for path, call in calls:
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert options.get("trust_remote_code") == "False", f"{path}, line {call.lineno}"


@pytest.mark.parametrize("model", ["causal"], indirect=True)
def test_the_code_would_run_if_it_were_trusted(model, mark):
    from transformers import AutoConfig

    AutoConfig.from_pretrained(model, trust_remote_code=True)
    assert mark.exists()


def test_prepare_does_not_run_a_tokenizers_code(tokenizer, mark, run, tmp_path):
    (tmp_path / "corpus.txt").write_text("We hold these truths to be self-evident.\n")
    message = run("prepare", tmp_path / "corpus.txt", tmp_path / "out", "--tokenizer", tokenizer, "--length", 8)
    assert f"{str(tokenizer)!r} does not open as a tokenizer (it wants to run its own code" in message
    assert not mark.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", ["masked"], indirect=True)
@pytest.mark.parametrize("command", ["sample", "inspect"])
def test_sample_and_inspect_do_not_run_a_models_code(command, model, mark, run):
    message = run(command, model)
    assert "has a model of type 'strange'" in message
    assert "(it wants to run its own code" in message
    assert not mark.exists()


@pytest.mark.parametrize("model", ["causal"], indirect=True)
def test_evaluate_does_not_run_an_evaluators_code(model, mark, run, tmp_path):
    (tmp_path / "texts.txt").write_text("one text\nand another\n")
    message = run("evaluate", tmp_path / "texts.txt", "--evaluator", model)
    assert f"the evaluator {model} does not open as a causal LM (it wants to run its own code" in message
    assert not mark.exists()


@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation"])
def test_a_kernel_from_the_hub_is_refused(key, tmp_path):
    """transformers would download the repository that config.json names as its attention, and run it."""
    for model, use in ((small_gpt2(), open_evaluator), (bert(), load)):
        model.save_pretrained(tmp_path)
        TOKENIZER.inner.save_pretrained(tmp_path)
        for value in ("someone/kernel", {"text_config": "someone/kernel"}):
            change(tmp_path / "config.json", **{key: value})
            with pytest.raises(ArcmaskError, match="wants to run a kernel from the hub"):
                use(str(tmp_path))


def test_a_folder_with_code_that_is_not_needed_opens_without_it(tokenizer, mark, tmp_path):
    """If transformers has the class itself, the folder's code is ignored."""
    change(tokenizer / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert open_tokenizer(tokenizer).encode("the cat") == TOKENIZER.encode("the cat")
    folder = tmp_path / "bert"
    bert().save_pretrained(folder)
    TOKENIZER.inner.save_pretrained(folder)
    (folder / "code.py").write_text(CODE.format(mark=mark))
    change(folder / "config.json", auto_map=AUTO_MAP)
    assert load(folder).table.shape == (TOKENIZER.size, 32)
    assert not mark.exists()


def test_python_files_in_a_checkpoint_are_left_alone(mark, run, tmp_path):
    """Neither an operator that feedback.json names nor a plan in the folder is imported."""
    folder = tmp_path / "checkpoint"
    arcmask.checkpoint.save(load("sotu-tiny"), folder)
    (folder / "code.py").write_text(CODE.format(mark=mark))
    feedback = json.loads((folder / "feedback.json").read_text()) if (folder / "feedback.json").is_file() else {}
    feedback |= {"operator": f"{folder / 'code.py'}:Tokenizer", "top_k": 3, "karcher_steps": 3}
    (folder / "feedback.json").write_text(json.dumps(feedback | {"confidence": {"fixed": 0.5}}))
    assert "unknown operator" in run("sample", folder)
    assert not mark.exists()
