"""The released 169M layout with random weights at L = 1,024, beside the estimate of a dry run: time and peak memory.

One two-pass training step, one sampling step inside the band, and one cell that is scored. The evaluator has the layout
of gpt2 (124M parameters) with random weights; gpt2-large, the paper's, has the same parts in greater number.
"""

import time
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from arcmask.data import open_tokenizer
from arcmask.estimates import Machine, Work, memory, work
from arcmask.estimates.sizes import count_parts
from arcmask.evaluation.evaluator import BATCH, CHUNK, make_evaluator
from arcmask.evaluation.scores import text_features, text_losses
from arcmask.feedback import SoftMask
from arcmask.model import MDLM
from arcmask.objective import TwoPass
from arcmask.sampling.draws import Draws
from arcmask.sampling.filters import Filter
from arcmask.sampling.rules import Ancestral
from arcmask.sampling.sampler import Sampler
from arcmask.settings.evaluate import PerplexitySettings
from benchmarks.measure import peak_extra_bytes, table, use_threads

LENGTH, VOCABULARY, TEXTS = 1024, 50258, 2
TOKENS = 900  # of a text; random ones are encoded into a few per cent more
IN_BAND, TOP_P = (0.0, 1.0), 0.9  # in this band the second of two steps has feedback


def released_model() -> MDLM:
    """Return the 169M layout with random weights, none of which is zero."""
    model, draw = MDLM.create("small", VOCABULARY, dropout=0.0), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "adaLN" in name or "output_layer.linear" in name:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=draw))
    return model


def training_step(model: MDLM) -> Callable[[], object]:
    """Return a two-pass step of one sequence with half of its positions masked."""
    draw, objective = torch.Generator().manual_seed(0), TwoPass(model, SoftMask()).train()
    rows = torch.randint(0, VOCABULARY - 1, (1, LENGTH), generator=draw)
    masked = torch.arange(LENGTH).unsqueeze(0) % 2 == 0
    return lambda: objective(rows, torch.tensor([0.5]), masked, feedback=True).loss.backward()


def sampling_step(model: MDLM) -> Callable[[], object]:
    """Return two steps of one sample; the second feeds back the predictions of the first."""
    sampler = Sampler(
        denoiser=model, rule=Ancestral(), steps=2, feedback=SoftMask(), filter=Filter(top_p=TOP_P), band=IN_BAND
    )
    return lambda: sampler.run(torch.full((1, LENGTH), model.mask_id), Draws(0, [0]))


def scored_cell(evaluator: GPT2LMHeadModel) -> Callable[[], object]:
    """Return perplexity and features of a few texts."""
    tokenizer, settings = open_tokenizer("gpt2"), PerplexitySettings()
    ready = make_evaluator("random", "0" * 64, evaluator, tokenizer.inner)
    ids = torch.randint(0, 50_000, (TEXTS, TOKENS), generator=torch.Generator().manual_seed(0)).tolist()
    texts = [tokenizer.decode(row) for row in ids]
    print(f"the texts have {' and '.join(str(len(row)) for row in ready.encode(texts))} tokens")

    def score() -> None:
        text_losses(ready, texts, settings, cache=None)
        text_features(ready, texts, settings, cache=None)

    return score


def _cpu_seconds(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the seconds of the fastest repeat: by the clock, and of processor time."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        starts = time.perf_counter(), time.process_time()
        run()
        ends = time.perf_counter(), time.process_time()
        best = [min(old, end - start) for old, start, end in zip(best, starts, ends, strict=True)]
    return best[0], best[1]


def run(repeats: int = 2, threads: int = 1) -> None:
    """Print time and peak memory of the three, each beside its estimate, which is of processor time too."""
    print(f"released layout, random weights: L = {LENGTH}, B = 1, float32; {use_threads(threads)}")
    model = released_model()
    evaluator = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY)).eval()
    base, scorer, machine = count_parts(model), count_parts(evaluator), Machine.measure(768, clock=time.process_time)
    speeds = f"{machine.products['float32'] / 1e9:.0f} billion operations per second in products"
    print(f"{base.parameters:,} parameters; evaluator {scorer.parameters:,}; {speeds}")
    sizes = {"rows": 1, "length": LENGTH, "precision": "float32"}
    step = work.training(base, LENGTH, masked=0.5, feedback=1.0) * LENGTH
    losses, features = (work.scoring(scorer, TOKENS, with_losses=both) * (TEXTS * TOKENS) for both in (True, False))
    works: dict[str, tuple[Callable[[], object], Work, memory.Memory]] = {
        "two-pass training step": (
            training_step(model),
            step,
            memory.training(base, dropout=0.0, recompute=False, world=1, device="cpu", **sizes),  # type: ignore[arg-type]
        ),
        "two sampling steps, one in the band": (
            sampling_step(model),
            work.sampling(base, LENGTH, 2, band=IN_BAND, top_p=TOP_P),
            memory.sampling(base, device="cpu", top_p=TOP_P, **sizes),  # type: ignore[arg-type]
        ),
        f"scoring of {TEXTS} texts": (
            scored_cell(evaluator),
            losses + features,
            memory.scoring(scorer, tokens=BATCH["cpu"], precision="float32", chunk=CHUNK["cpu"]),
        ),
    }
    cells: list[tuple[str, ...]] = []
    for name, (run_once, counted, needed) in works.items():
        run_once()  # gradients exist from here on, and do not count as extra
        clock, processor = _cpu_seconds(run_once, repeats)
        peak, extra = peak_extra_bytes(run_once), needed.total - needed.state
        expected = machine.seconds(counted, "float32")
        seconds = f"{clock:.2f}", f"{processor:.2f}", f"{expected:.2f}"
        cells.append((name, f"{counted.products / 1e9:.0f}", *seconds, f"{peak / 1e6:.0f}", f"{extra / 1e6:.0f}"))
    header = ("work", "10^9 operations", "seconds", "CPU seconds", "estimate", "peak extra MB", "estimate MB")
    print("\n" + table(cells, header))
