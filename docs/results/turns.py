"""Print how far feedback of weight 0.3 turns the mask's embedding, by the entropy of the prediction.

arcmask prepare sotu data/sotu-text8-128 --tokenizer text8 --length 128
python docs/results/turns.py sotu-tiny data/sotu-text8-128
"""

import sys

import torch
from scipy.stats import spearmanr

import arcmask
from arcmask.data import open_prepared
from arcmask.diagnostics import predict
from arcmask.sphere import angle

WEIGHT = 0.3


def main(checkpoint: str, data: str) -> None:
    """Print a table for a checkpoint, on 24 rows of held-out text at times from 0.1 to 0.9."""
    denoiser, corpus = arcmask.load(checkpoint), open_prepared(data, "validation")
    predictions = predict(denoiser, corpus.rows(range(0, len(corpus), len(corpus) // 24)), seed=0)
    table = denoiser.table.detach().double()
    mask = table[denoiser.mask_id]
    candidates = [prediction.candidates for prediction in predictions]
    entropy = torch.cat([rows.entropy.double() for rows in candidates])
    mean = torch.cat([(rows.probs.double().unsqueeze(2) * table[rows.ids]).sum(1) for rows in candidates])
    turns = {
        "LERP": angle((1 - WEIGHT) * mask + WEIGHT * mean, mask.expand_as(mean)).rad2deg(),
        "SLERP": WEIGHT * angle(mean, mask.expand_as(mean)).rad2deg(),
    }
    norm = mean.norm(dim=1) / mask.norm()
    print("| entropy of the prediction | positions | norm of the mean / norm of the mask | LERP | SLERP |")
    print("|---|---|---|---|---|")
    for name, chosen in (("below 0.3 nats", entropy < 0.3), ("above 2 nats", entropy > 2)):
        degrees = " | ".join(f"{turn[chosen].mean():.1f}°" for turn in turns.values())
        print(f"| {name} | {int(chosen.sum()):,} | {norm[chosen].mean():.2f} | {degrees} |")
    ranks = " | ".join(f"{spearmanr(entropy, turn).statistic:+.2f}" for turn in turns.values())
    print(f"| rank correlation with entropy | {len(entropy):,} | | {ranks} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
