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
BLOCKS = [block.strip().splitlines() for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)]
# The lines of a block follow each other. Those that convert are examples side by side, which write the same folder.
SCRIPTS = [[line] for line in BLOCKS[0]] + BLOCKS[1:]
SMALLER = {"128": "16", "500": "2"}  # of a length and of steps
EXTRA = {"train": ["--batch_size", "2", "--micro_batch", "2", "--validation_rows", "2"]}


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


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[-1].split("#")[0].strip())
def test_the_commands_run(script, tmp_path):
    save(small_mdlm(), tmp_path / "model")
    convert("model", "run.ckpt")
    if script[0].startswith("arcmask convert folder"):
        (tmp_path / "model").rename(tmp_path / "folder")
    causal_lm("llama").save_pretrained(tmp_path / "causal-lm")
    causal_tokenizer().save_pretrained(tmp_path / "causal-lm")
    arcmask.load("causal-lm", bidirectional=True, mask_token="<mask>").save("smollm2-denoiser")
    (tmp_path / "my-texts").mkdir()
    for number in range(40):
        (tmp_path / "my-texts" / f"{number}.txt").write_text("the cat sat on a mat and ran off " * 4)
    for line in script:
        command, *words = (SMALLER.get(word, word) for word in shlex.split(line, comments=True))
        assert command == "arcmask"
        main([*words, *EXTRA.get(words[0], [])])
    written = words[2] if words[0] == "convert" else words[words.index("--run") + 1]
    assert arcmask.load(written).table.shape[0] in (23, 40, 41)


def test_there_is_something_to_run():
    assert len(CODE) >= 5
    assert len(SCRIPTS) >= 6
