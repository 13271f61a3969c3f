"""How fast a machine multiplies matrices and sweeps over numbers: timed here, or from the data sheet of a card."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from arcmask.estimates.memory import Device
from arcmask.estimates.work import Work
from arcmask.model import best_device
from arcmask.model.denoiser import uses_bfloat16
from arcmask.ranks import started_processes
from arcmask.settings import TrainingPrecision
from arcmask.settings.cards import CARDS, Card, check_card

# What a step reaches of a data sheet's peaks: of the products, and of the memory's bandwidth.
_PRODUCTS, _BANDWIDTH = {"bfloat16": 0.6, "float32": 0.8, "float64": 0.8}, 0.7
_BYTES = 10  # that an elementwise kernel reads and writes for each number of its result
_SECONDS = 0.15  # that one timing takes, at least
Clock = Callable[[], float]


@dataclass(frozen=True)
class Machine:
    """The speeds of one process."""

    name: str
    products: dict[str, float]  # operations per second in matrix products, by precision
    numbers: float  # results of elementwise kernels per second
    memory: float | None = None  # bytes, of a GPU
    has_bfloat16: bool = True
    is_card: bool = False  # whether the speeds are from a data sheet

    @property
    def is_gpu(self) -> bool:
        """Whether each process has one of these to itself."""
        return self.memory is not None

    @property
    def device(self) -> Device:
        """The kind of device, by which the sizes of blocks are chosen."""
        return "gpu" if self.is_gpu else "cpu"

    @classmethod
    def find(cls, card: str | None, width: int) -> "Machine":
        """Return the machine of a card's name, or time this one at a model's width."""
        if card is None:
            return cls.measure(width)
        check_card(card)
        return cls.of_card(CARDS[card])

    @classmethod
    def of_card(cls, card: Card) -> "Machine":
        """Return the speeds of a card."""
        products = {name: share * getattr(card, name) for name, share in _PRODUCTS.items()}
        return cls(card.name, products, _BANDWIDTH * card.bandwidth / _BYTES, card.memory, is_card=True)

    @classmethod
    def measure(cls, width: int, rows: int = 2048, clock: Clock = time.monotonic) -> "Machine":
        """Time products (rows, D) x (D, 4 D) and an elementwise kernel on the device that this process uses."""
        device = best_device()
        has_bfloat16 = uses_bfloat16("auto", device)
        products = {}
        for name in ("float32", "float64", "bfloat16") if has_bfloat16 else ("float32", "float64"):
            x, weight = (torch.ones(n, width, dtype=getattr(torch, name), device=device) for n in (rows, 4 * width))
            products[name] = 8 * rows * width**2 / _seconds(partial(torch.nn.functional.linear, x, weight), clock)
        x = torch.ones(rows, 4 * width, device=device)
        numbers = x.numel() / _seconds(partial(torch.nn.functional.gelu, x, approximate="tanh"), clock)
        threads = torch.get_num_threads()
        name = f"this processor, {threads} thread{'' if threads == 1 else 's'}" if device.type == "cpu" else "this GPU"
        memory = None if device.type == "cpu" else float(torch.cuda.get_device_properties(device).total_memory)
        return cls(name, products, numbers, memory, has_bfloat16)

    def precision(self, precision: TrainingPrecision) -> str:
        """Return what a precision means on this machine."""
        if precision != "auto":
            return precision
        return "bfloat16" if self.has_bfloat16 else "float32"

    def speed_up(self, world: int) -> int:
        """Return by how much `world` processes are faster than the one that was timed.

        Processes that would share this processor are not faster than one with all of its cores. Those of a launcher
        are timed while they share it.
        """
        return world if self.is_gpu or world == started_processes() else 1

    def seconds(self, work: Work, precision: TrainingPrecision) -> float:
        """Return the seconds that one process needs for some work."""
        speed = self.products.get(self.precision(precision), self.products["float32"])
        return work.products / speed + (2 if precision == "float64" else 1) * work.numbers / self.numbers


def _seconds(run: Callable[[], object], clock: Clock) -> float:
    """Return the seconds of a call: the fastest of a few, after two that warm up."""
    best = float("inf")
    begin = clock()
    for number in range(1000):
        start = clock()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        end = clock()
        best = min(best, end - start) if number > 1 else best
        if number > 3 and end - begin > _SECONDS:
            break
    return best
