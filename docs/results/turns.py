"""Measure how far feedback of weight 0.3 turns the mask's embedding, by the entropy of the prediction.

    python docs/results/turns.py   # in turns.json beside this file; prepares both corpora in data
    python docs/results/page.py    # the table and the figure

LERP goes to the weighted Euclidean mean of the three candidates. SLERP goes to its direction.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from factorial import WEIGHT, Study, studies
from measured import read_cells, table, write_cells
from scipy.stats import spearmanr

from arcmask.diagnostics import predict
from arcmask.sphere import angle

EDGES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 4.0)  # of the bins of entropy, in nats
ROWS = 24
COLUMNS = ("entropy", "norm", "LERP", "SLERP")  # of a bin, after the number of positions


def measure(study: Study) -> dict[str, Any]:
    """Return by bin the number of positions and the means of the columns, and each turn's correlation with entropy."""
    denoiser, corpus = study.denoiser, study.corpus("validation")
    predictions = predict(denoiser, corpus.rows(range(0, len(corpus), len(corpus) // ROWS)), seed=0)
    vectors = denoiser.table.detach().double()
    mask = vectors[denoiser.mask_id]
    candidates = [prediction.candidates for prediction in predictions]
    entropy = torch.cat([rows.entropy.double() for rows in candidates])
    mean = torch.cat([(rows.probs.double().unsqueeze(2) * vectors[rows.ids]).sum(1) for rows in candidates])
    columns = {
        "entropy": entropy,
        "norm": mean.norm(dim=1) / mask.norm(),
        "LERP": angle((1 - WEIGHT) * mask + WEIGHT * mean, mask.expand_as(mean)).rad2deg(),
        "SLERP": WEIGHT * angle(mean, mask.expand_as(mean)).rad2deg(),
    }
    bins = []
    for low, high in pairwise(EDGES):
        chosen = (entropy >= low) & (entropy < high)
        bins.append([int(chosen.sum()), *(column[chosen].mean().item() for column in columns.values())])
    ranks = {name: float(spearmanr(entropy, columns[name]).statistic) for name in ("LERP", "SLERP")}
    return {"bins": bins, "ranks": ranks}


def tables() -> dict[str, list[str]]:
    """Return the table by its title, as lines of markdown: the lowest and the highest entropies."""
    rows = []
    for model, cell in read_cells("turns").items():
        for label, number in ((f"below {EDGES[1]:g} nats", 0), (f"above {EDGES[-2]:g} nats", -1)):
            count, _, norm, *turns = cell["bins"][number]
            rows.append([f"`{model}`", label, f"{count:,}", f"{norm:.2f}", *(f"{turn:.1f}°" for turn in turns)])
        ranks = [f"{rank:+.2f}".replace("-", "\N{MINUS SIGN}") for rank in cell["ranks"].values()]
        total = sum(row[0] for row in cell["bins"])
        rows.append([f"`{model}`", "rank correlation with entropy", f"{total:,}", "", *ranks])
    columns = ["model", "entropy of the prediction", "positions", "norm of the mean / norm of the mask"]
    return {"turns": table([*columns, "LERP turns by", "SLERP turns by"], rows)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    write_cells("turns", {name: measure(study) for name, study in studies(Path("data")).items()})
