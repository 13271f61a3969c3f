"""The page "Your masked LM in ten minutes": every command runs, on a small BERT with random weights."""

import re
import shlex
from pathlib import Path

import pytest
from planted import write_texts
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from arcmask.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "ten-minutes.md"
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"]
# Sizes for a test; the page has those of a real model.
SMALLER = {"--length": "32", "--steps": "2", "--num": "2"}
EXTRA = {
    "tune": ["--rows", "4", "--held_out_rows", "4", "--fixed"],
    "inspect": ["--gain_tokens", "64"],
    "train": ["--batch_size", "2", "--micro_batch", "2", "--validation_rows", "2"],
}


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words[1:] for words in lines if words]


def smaller(words: list[str]) -> list[str]:
    """Return a command with sizes for a test."""
    sized = [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    return [*sized, *EXTRA.get(words[0], [])]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    (tmp_path / "my-texts").mkdir()
    write_texts(tmp_path / "my-texts", WORDS)
    names = ("pad", "unk", "cls", "sep", "mask")
    special = {f"{name}_token": f"[{name.upper()}]" for name in names}
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.train_from_iterator([" ".join(WORDS)] * 9, trainers.WordPieceTrainer(special_tokens=list(special.values())))
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    tokenizer.save_pretrained(tmp_path / "my-bert")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).save_pretrained(
        tmp_path / "my-bert"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_page_runs(home, capsys):
    assert [words[0] for words in commands()].count("sample") == 2
    for words in commands():
        main(smaller(words))
    printed = capsys.readouterr().out
    assert "gain: " in printed
    assert "linear feedback changes the bound" in printed
    for name in ("samples.jsonl", "scores.json", "trained.json", "explore.html", "runs/mine/report/report.html"):
        assert (home / name).is_file(), name
