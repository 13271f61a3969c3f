"""`arcmask tune`: fit feedback to a model as it is, without training it."""

from pathlib import Path

from torch import Tensor

from arcmask.checkpoint import load_for_use
from arcmask.checkpoint.fitting import check_corpus
from arcmask.data import PreparedCorpus, open_prepared
from arcmask.errors import ArcmaskError
from arcmask.feedback import find_operator
from arcmask.files import writable
from arcmask.settings.tune import TuneConfig
from arcmask.tuning import tune


def run(config: TuneConfig) -> None:
    """Fit the feedback, write a copy of the checkpoint with it, and print the gain and the folder."""
    out = writable(Path(config.out), is_folder=True)
    if out.exists() and any(out.iterdir()):
        raise ArcmaskError(f"{out} exists already and is not empty; give a new folder")
    find_operator(config.operator)
    train, held_out = (open_prepared(config.data, split) for split in ("train", "validation"))
    denoiser = load_for_use(config.checkpoint, mask_id=config.mask_id)
    check_corpus(train, denoiser)
    tuned = tune(
        denoiser,
        _spread(train, config.rows),
        config.operator,
        config.fixed,
        seed=config.seed,
        held_out=_spread(held_out, config.held_out_rows),
        top_k=config.top_k,
        karcher_steps=config.karcher_steps,
    )
    denoiser.feedback = tuned.feedback
    denoiser.save(out)
    gain = f"{tuned.difference:+.4f} ± {tuned.half_width:.4f} nats per token"
    print(f"{tuned.feedback.operator}: {tuned.feedback.confidence.extra_repr()}")
    print(f"two-pass minus plain bound ({tuned.plain:.4f}) on {tuned.rows} held-out rows: {gain}")
    print("± is a 95 % confidence interval (Student's t over rows, paired); below 0, feedback helps")
    print(out)


def _spread(corpus: PreparedCorpus, count: int) -> Tensor:
    """Return `count` rows (N, L), spread evenly over a corpus."""
    count = min(count, len(corpus))
    return corpus.rows([i * len(corpus) // count for i in range(count)])
