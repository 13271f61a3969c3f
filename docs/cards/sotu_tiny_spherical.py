"""Ship a run as `sotu-tiny-spherical`: its weights in bfloat16, and a model card with numbers that are measured here.

python docs/cards/sotu_tiny_spherical.py runs/sotu-tiny-spherical data/sotu-text8-128
"""

import json
import math
import shutil
import sys
from pathlib import Path
from string import Template

import yaml

import arcmask
from arcmask.checkpoint import convert
from arcmask.data import open_prepared
from arcmask.evaluation import likelihood

NAME = "sotu-tiny-spherical"
SHIPPED = Path(__file__).parents[2] / "src" / "arcmask" / "checkpoint" / "shipped" / NAME


def main(run: Path, data: str) -> None:
    """Write the weights and the card."""
    shutil.rmtree(SHIPPED, ignore_errors=True)
    convert(str(run), str(SHIPPED), dtype="bfloat16")
    model, settings = arcmask.load(SHIPPED).float(), yaml.safe_load((run / "config.yaml").read_text())
    assert model.feedback is not None
    confidence = model.feedback.confidence
    bounds = likelihood(model, data, rows=2048)
    base = arcmask.load("sotu-tiny")
    base.feedback = None
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line for line in lines if "validation_nll_plain" in line]
    names = ("validation_nll_plain", "validation_nll_feedback")
    rows = [
        f"| {line['step']} | {' | '.join(f'{line[name] / math.log(2):.3f}' for name in names)} |" for line in losses
    ]
    samples = arcmask.sample(model, num=6, steps=64, seed=1)
    length = open_prepared(data, "train").length
    card = Template((Path(__file__).parent / f"{NAME}.template.md").read_text()).substitute(
        steps=settings["steps"],
        batch=settings["batch_size"],
        length=length,
        tokens=f"{settings['steps'] * settings['batch_size'] * length:,}",
        rate=settings["learning_rate"],
        gate=settings["gate_probability"],
        top_k=settings["top_k"],
        karcher=settings["karcher_steps"],
        scale=f"{confidence.scale.item():.3f}",
        centre=f"{confidence.centre.item():.3f}",
        steepness=f"{confidence.steepness.item():.3f}",
        start_centre=settings["centre"],
        start_steepness=settings["steepness"],
        plain=f"{bounds['plain']['bits_per_byte']:.3f}",
        two_pass=f"{bounds['two_pass']['bits_per_byte']:.3f}",
        base=f"{likelihood(base, data, rows=2048)['plain']['bits_per_byte']:.3f}",
        held_out=f"{bounds['plain']['rows']:,}",
        data=data,
        validations="\n".join(rows),
        texts="\n".join(f"    {text}" for text in samples.texts or ()),
    )
    (SHIPPED / "README.md").write_text(card)
    print(card)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
