"""`arcmask sample --prompts`: a prompt per line, samples that keep to them, resuming, and bad input in one sentence."""

import json
import re
from pathlib import Path

import pytest
import torch

import arcmask
from arcmask.cli import main
from arcmask.errors import ArcmaskError

CHAINS = ("ACDEF[MASK][MASK]WY", "[MASK]GGG")


@pytest.fixture
def prompts(tmp_path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"{chain}\n" for chain in CHAINS))
    return path


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_sample_takes_its_prompt_and_is_the_sample_of_that_prompt_alone(chain_model, prompts, tmp_path):
    out = tmp_path / "out.jsonl"
    words = ["sample", chain_model, "--prompts", str(prompts), "--steps", "3", "--out", str(out)]
    main([*words, "--num", "5", "--batch_size", "3"])
    found = records(out)
    assert [record["prompt"] for record in found] == [CHAINS[index % 2] for index in range(5)]
    for record in found:
        given = re.escape(record["prompt"]).replace(re.escape("[MASK]"), "[A-Z]")
        assert re.fullmatch(given, record["text"])
    alone = arcmask.sample(chain_model, num=5, steps=3, prompt=[CHAINS[index % 2] for index in range(5)])
    assert [record["text"] for record in found] == alone.texts
    main([*words, "--num", "7"])
    assert records(out)[:5] == found
    assert len(records(out)) == 7


def test_a_json_line_may_have_tokens_and_a_prompt_without_holes_is_continued(chain_model, tmp_path):
    path, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    lines = [{"text": "A?", "tokens": [2, 5, 4, 3]}, {"text": "AC", "tokens": [5, 6]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--num", "2", "--length", "9", "--steps", "2", "--out", str(out)]
    main(["sample", chain_model, "--prompts", str(path), *words])
    first, second = records(out)
    assert (first["prompt"], first["text"][0], len(first["text"])) == ("A?", "A", 2)
    assert (second["text"][:2], len(second["text"])) == ("AC", 7)


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ([2, 5, 6, 3], "the prompt ends with [SEP] and has no [MASK], so there is nothing to fill in"),
        ([2, 5, 2, 4, 3], "the prompt has [CLS], which is no symbol of a sequence"),
        ([5, 1, 4, 6], "the prompt has [UNK], which is no symbol of a sequence"),
        ([5, 4, 0], "the prompt has [PAD], which is no symbol of a sequence"),
    ],
)
def test_ids_that_are_no_sequence_are_refused(tokens, sentence, chain_model):
    with pytest.raises(ArcmaskError) as problem:
        arcmask.sample(arcmask.load(chain_model), prompt=tokens, length=12, steps=2)
    assert str(problem.value) == sentence


@pytest.mark.parametrize("prompt", [5, 0.5, torch.tensor(7)])
def test_a_prompt_that_is_a_number_is_refused(prompt, chain_model):
    with pytest.raises(ArcmaskError, match="must be a text, the ids of one, or a list of either"):
        arcmask.sample(arcmask.load(chain_model), prompt=prompt, length=8, steps=2)


def test_a_byte_order_mark_is_no_symbol(chain_model, tmp_path, capsys):
    path, out = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    path.write_bytes("\ufeffAC[MASK]D\n".encode())
    main(["sample", chain_model, "--prompts", str(path), "--num", "1", "--steps", "2", "--out", str(out)])
    assert capsys.readouterr().out.endswith(f"next: arcmask evaluate {out} --evaluator sapiens-vh\n")
    assert records(out)[0]["prompt"] == "AC[MASK]D"


def test_samples_of_other_prompts_are_not_continued(chain_model, prompts, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    words = ["sample", chain_model, "--prompts", str(prompts), "--num", "2", "--steps", "2", "--out", str(out)]
    main(words)
    prompts.write_text("ACDEF[MASK][MASK]WW\n[MASK]GGG\n")
    with pytest.raises(SystemExit):
        main(words)
    assert "holds samples with prompt 'ACDEF[MASK][MASK]WY', but now prompt is " in capsys.readouterr().err


BAD = {
    "AC[MASK]\nhello [MASK]\n": "prompt 2 of {}: 'hello \u25a1' has 'h' at position 1, but the tokenizer residues",
    "ACB[MASK]\n": "prompt 1 of {}: 'ACB\u25a1' has 'B' at position 3, but the tokenizer residues knows only ACD",
    "AC[MASK]\n\n": "prompt 2 of {} is empty; give its symbols, and [MASK] for each hole",
    "": "{} holds no prompts",
    f"{'A' * 39}[MASK]\n": "prompt 1 of {}: the length is 42, but the model takes at most 40 positions",
    "AC[MASK]_D\n": "prompt 1 of {}: 'AC\u25a1_D' has '_' at position 4, but the tokenizer residues knows",
    ">1\nA[MASK]\n": "prompt 1 of {}: '>1' has '>' at position 1, but the tokenizer residues knows only ACDEF",
    "A[MASK]\nACD\n": "prompt 2 of {}: the prompt has no [MASK], so there is nothing to fill in; write one for each",
    "A[MASK]\n" * 4: "{} has 4 prompts, but the number of samples is 3; give one or more for each prompt",
}


@pytest.mark.parametrize(("content", "sentence"), BAD.items())
def test_prompts_that_cannot_be_are_refused_in_a_sentence(content, sentence, chain_model, tmp_path, capsys):
    path = tmp_path / "prompts.txt"
    path.write_text(content)
    with pytest.raises(SystemExit) as stop:
        main(["sample", chain_model, "--prompts", str(path), "--num", "3", "--out", str(tmp_path / "out.jsonl")])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"arcmask: {sentence.format(path)}")
    assert said.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["prompts.txt"]


def test_a_prompt_that_is_no_sequence_is_refused_in_a_sentence(chain_model, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out.jsonl")]
    for words, sentence in (
        (
            ["--prompt", "ACX"],
            "'ACX' has 'X' at position 3, but the tokenizer residues knows only ACDEFGHIKLMNPQRSTVWY; write [MASK] for "
            "a symbol to fill in",
        ),
        (
            ["--prompt", "AC[MASK][MASK]Dd"],
            "'AC\u25a1\u25a1Dd' has 'd' at position 6, but the tokenizer residues knows only ACDEFGHIKLMNPQRSTVWY; "
            "write capital letters",
        ),
        (["--prompt", "ACD"], "the prompt has no [MASK], so there is nothing to fill in; write one for each symbol"),
        (
            ["--prompt", "A" * 60, "--length", "40"],
            "the prompt has 62 tokens with [CLS] and [SEP], but a sample has 40 positions",
        ),
        (["--prompt", "A", "--prompts", "b.txt"], "prompt is 'A' and prompts is b.txt; give one of them"),
        (["--prompts", "b.jsonl"], "there is no file or folder b.jsonl"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["sample", chain_model, *words, *out])
        assert stop.value.code == 2
        assert capsys.readouterr().err == f"arcmask: {sentence}\n"
    path = tmp_path / "numbers.jsonl"
    path.write_text("5\n")
    with pytest.raises(SystemExit):
        main(["sample", chain_model, "--prompts", str(path), *out])
    assert capsys.readouterr().err == f'arcmask: {path}, line 1, has no "text"\n'
