"""How far linear and spherical feedback of one fixed weight turn a blank, where the model is sure and where it is not.

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
    denoiser, corpus = arcmask.load(checkpoint), open_prepared(data, "validation")
    predictions = predict(denoiser, corpus.rows(range(0, len(corpus), len(corpus) // 24)), seed=0)
    table = denoiser.table.detach().double()
    mask = table[denoiser.mask_id]
    entropy = torch.cat([found.candidates.entropy.double() for found in predictions])
    mean = torch.cat(
        [(found.candidates.probs.double().unsqueeze(2) * table[found.candidates.ids]).sum(1) for found in predictions]
    )
    linear = angle((1 - WEIGHT) * mask + WEIGHT * mean, mask.expand_as(mean)).rad2deg()
    spherical = WEIGHT * angle(mean, mask.expand_as(mean)).rad2deg()
    norm = mean.norm(dim=1) / mask.norm()
    print(
        "| predictions | positions | the mean's norm, in the mask's | LERP turns | SLERP turns |\n|---|---|---|---|---|"
    )
    for name, chosen in (("sure, below 0.3 nats", entropy < 0.3), ("unsure, above 2 nats", entropy > 2)):
        turned = " | ".join(f"{turn[chosen].mean():.1f}°" for turn in (linear, spherical))
        print(f"| {name} | {int(chosen.sum()):,} | {norm[chosen].mean():.2f} | {turned} |")
    ranks = [float(spearmanr(entropy, turn).statistic) for turn in (linear, spherical)]
    print(f"| rank correlation with entropy | {len(entropy):,} | | {ranks[0]:+.2f} | {ranks[1]:+.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
