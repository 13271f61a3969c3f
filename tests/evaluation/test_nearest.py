"""The distance to the nearest training row, against the definition of the edit distance."""

import json
import random

import pytest

import arcmask
from arcmask.cli import main
from arcmask.errors import ArcmaskError
from arcmask.evaluation import Neighbours


def edits(first: list[int], second: list[int]) -> int:
    if not first or not second:
        return len(first) + len(second)
    table = [[i + j for j in range(len(second) + 1)] for i in range(len(first) + 1)]
    for i, one in enumerate(first, 1):
        for j, other in enumerate(second, 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (one != other))
    return table[-1][-1]


def test_the_nearest_row_is_the_one_with_the_fewest_edits():
    draw = random.Random(0)
    rows = [[draw.randrange(4) for _ in range(draw.randint(1, 14))] for _ in range(300)]
    neighbours = Neighbours(rows)
    for _ in range(60):
        sample = [draw.randrange(4) for _ in range(draw.randint(0, 18))]
        assert neighbours.distance(sample) == min(edits(sample, row) for row in rows)
    assert neighbours.distance(rows[200]) == 0


def test_evaluate_writes_the_distance_and_the_share_of_distinct_samples(chain_data, chains, tmp_path, capsys):
    shorter = chains[0][:4] + chains[0][6:]
    (tmp_path / "samples.txt").write_text("\n".join([chains[0], shorter, shorter, chains[1]]) + "\n")
    out = tmp_path / "scores.json"
    words = ["--nearest", chain_data, "--evaluator", "none", "--out", str(out)]
    main(["evaluate", str(tmp_path / "samples.txt"), *words])
    assert "36 training rows of" in capsys.readouterr().out
    (record,) = json.loads(out.read_text())["sets"].values()
    assert record["scores"]["nearest"]["value"] == (0 + 2 + 2 + 0) / 4
    assert record["scores"]["distinct_samples"]["value"] == 3 / 4
    assert record["scores"]["entropy"]["tokenizer"] == "residues"


def test_samples_that_are_no_sequences_and_rows_that_are_no_documents_are_refused(chain_data, corpus, capsys):
    with pytest.raises(
        ArcmaskError, match="'no sequence' has 'n' at position 1, but the tokenizer residues knows only "
    ):
        arcmask.evaluate(["no sequence"], nearest=chain_data, evaluator="none")
    with pytest.raises(ArcmaskError, match="whose rows are pieces of a stream of text; prepare it with --pack none"):
        arcmask.evaluate(["text"], nearest=corpus, evaluator="none")
    with pytest.raises(SystemExit):
        main(["evaluate", "--checkpoint", "a", "--data", corpus, "--nearest", chain_data])
    assert "nearest has no effect, since there are no samples to score" in capsys.readouterr().err
