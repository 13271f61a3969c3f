"""Every example in docs/models.md, run on a small model of the same shape under the same name."""

import re
import shlex
from pathlib import Path

import pytest
import tokenizers as rust
import torch
from families import causal_lm, causal_tokenizer, masked_lm
from models import small_mdlm
from public_layouts import write_dream_tokenizer, write_llada_tokenizer, write_public
from transformers import PreTrainedTokenizerFast

import arcmask
from arcmask.checkpoint import convert, save
from arcmask.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "models.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder with the models that the page names, each under its name on the hub."""
    llada = write_public("llada", tmp_path / "GSAI-ML/LLaDA-8B-Base", max_sequence_length=256)
    write_llada_tokenizer(llada)
    dream = write_public("Dream", tmp_path / "Dream-org/Dream-v0-Base-7B", max_position_embeddings=256)
    write_dream_tokenizer(dream)
    smollm2 = tmp_path / "HuggingFaceTB/SmolLM2-135M"
    causal_lm("llama").save_pretrained(smollm2)
    causal_tokenizer().save_pretrained(smollm2)
    bert = tmp_path / "answerdotai/ModernBERT-base"
    masked_lm("modernbert").save_pretrained(bert)
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
    inner = rust.Tokenizer(rust.models.WordLevel({name: i for i, name in enumerate(names.values())}, "[UNK]"))
    special = {f"{key}_token": name for key, name in names.items()}
    PreTrainedTokenizerFast(tokenizer_object=inner, **special).save_pretrained(bert)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("number", range(len(CODE)))
def test_the_examples_in_python_run(number):
    denoiser = arcmask.load("sotu-tiny")
    names = {"denoiser": denoiser, "device": "cpu", "masked": torch.ones(1, 4, dtype=torch.bool)}
    names |= {"model": denoiser, "tokens": torch.zeros(1, 4, dtype=torch.long)}
    names |= {"ids": torch.zeros(1, 4, 2, dtype=torch.long), "weights": torch.full((1, 4, 2), 0.5)}
    names["embeddings"] = denoiser.table[names["tokens"]]
    exec(CODE[number], names)
    assert isinstance(names["denoiser"], arcmask.Denoiser)
    if "smollm2-denoiser" in CODE[number]:
        assert arcmask.load("smollm2-denoiser").bidirectional


@pytest.mark.usefixtures("hub")
def test_the_names_in_the_table_open():
    for name in re.findall(r'`arcmask\.load\("([^"]+)"\)`', PAGE):
        assert isinstance(arcmask.load(name), arcmask.Denoiser), name


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(small_mdlm(), tmp_path / "model")
    convert("model", "run.ckpt")
    if line.startswith("arcmask convert folder"):
        (tmp_path / "model").rename(tmp_path / "folder")
    causal_lm("llama").save_pretrained(tmp_path / "causal-lm")
    causal_tokenizer().save_pretrained(tmp_path / "causal-lm")
    command, *words = shlex.split(line, comments=True)
    assert command == "arcmask"
    main(words)
    assert arcmask.load(words[2]).table.shape[0] in (23, 41)


def test_there_is_something_to_run():
    assert len(CODE) >= 5
    assert len(COMMANDS) >= 4
