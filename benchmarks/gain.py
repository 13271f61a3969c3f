"""Time the gain curve of the shipped model against direct calls of `likelihood_bound`."""

import torch

import arcmask
from arcmask.diagnostics import gain_curve
from arcmask.feedback import Confidence, SoftMask
from arcmask.objective import TwoPass, likelihood_bound
from benchmarks.measure import fastest, peak_extra_bytes, table, use_threads

ROWS, LENGTH, BATCH = 32, 128, 16
OPERATORS, WEIGHTS = ("linear", "spherical"), (0.05, 0.1, 0.2, 0.3, 0.5)


def run(repeats: int = 3, threads: int = 2) -> None:
    """Print the fastest repeat of both, their ratio and their memory."""
    print(f"gain curve of sotu-tiny: {ROWS} x {LENGTH}, {len(OPERATORS)} operators, {len(WEIGHTS)} weights")
    print(use_threads(threads))
    denoiser = arcmask.load("sotu-tiny").eval()
    rows = torch.randint(0, 27, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))

    def shared() -> None:
        gain_curve(denoiser, rows, OPERATORS, WEIGHTS, batch_size=BATCH)

    def direct() -> None:
        likelihood_bound(TwoPass(denoiser, None), rows.split(BATCH), feedback=False)
        for name in OPERATORS:
            for weight in WEIGHTS:
                objective = TwoPass(denoiser, SoftMask(name, confidence=Confidence(fixed=weight)))
                likelihood_bound(objective, rows.split(BATCH), feedback=True)

    works = {"gain_curve": shared, "likelihood_bound": direct}
    seconds = fastest(works, repeats, warm_up=1)
    memory = {name: peak_extra_bytes(work) / 1e6 for name, work in works.items()}
    cells: list[tuple[str, ...]] = [
        (name, f"{seconds[name]:.2f}", f"{seconds['likelihood_bound'] / seconds[name]:.2f} x", f"{memory[name]:.0f}")
        for name in works
    ]
    print(table(cells, ("", "seconds", "speed", "peak extra MB")))
