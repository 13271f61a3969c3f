"""`arcmask tune`: fit feedback to a model as it is, without training it."""

from pathlib import Path

from arcmask.checkpoint import load_for_use
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import open_prepared
from arcmask.diagnostics.inspection import find_quality
from arcmask.errors import ArcmaskError
from arcmask.feedback import find_operator
from arcmask.files import writable
from arcmask.progress import Progress
from arcmask.settings.tune import TuneConfig
from arcmask.tuning import GENERATION_CELLS, tune

_RECOMMENDED = "linear"  # docs/results/README.md says why; the default stays the paper's operator
_ADVICE = (
    f"Fit --operator {_RECOMMENDED} too, and keep the better one: each at its best constant weight, it lowered the "
    "bound of both models that we measured more than spherical feedback did."
)


def run(config: TuneConfig) -> None:
    """Fit the feedback, write a copy of the checkpoint with it, and print the gain and the folder."""
    out = writable(Path(config.out), is_folder=True)
    if out.exists() and any(out.iterdir()):
        raise ArcmaskError(f"{out} exists already and is not empty; give a new folder")
    find_operator(config.operator)
    train, held_out = (open_prepared(config.data, split) for split in ("train", "validation"))
    denoiser = load_for_use(config.checkpoint, mask_id=config.mask_id)
    check_corpus(train, denoiser)
    is_bound = config.goal == "bound"
    with Progress(
        "fitting", unit="bounds" if is_bound else "sets of samples", total=None if is_bound else GENERATION_CELLS
    ) as progress:
        tuned = tune(
            denoiser,
            train.rows(train.spread(config.rows)),
            config.operator,
            config.fixed,
            config.goal,
            config.seed,
            held_out=held_out.rows(held_out.spread(config.held_out_rows)),
            top_k=config.top_k,
            karcher_steps=config.karcher_steps,
            quality=None if is_bound else find_quality(config.evaluator, train),
            samples=config.samples,
            steps=config.steps,
            advance=progress.advance,
        )
    denoiser.feedback = tuned.feedback
    denoiser.save(out)
    print(f"{tuned.feedback.operator}: {tuned.feedback.confidence.extra_repr()}")
    print(tuned.reading)
    if tuned.feedback.operator != _RECOMMENDED:
        print(_ADVICE)
    print(out)
