"""GPUs by name, with the numbers of their data sheets, for estimates of time and memory."""

from dataclasses import dataclass

from arcmask.errors import ArcmaskError, check_choice


@dataclass(frozen=True)
class Card:
    """A GPU. The speeds are peaks without sparsity; float32 is without TF32, as torch multiplies by default."""

    name: str
    memory: float  # bytes
    bfloat16: float  # operations per second
    float32: float
    float64: float
    bandwidth: float  # bytes per second


CARDS = {
    card.name: card
    for card in (
        Card("A6000", 48e9, 154.8e12, 38.7e12, 0.6e12, 768e9),
        Card("A100", 80e9, 312e12, 19.5e12, 9.7e12, 2039e9),
        Card("H100", 80e9, 989e12, 67e12, 34e12, 3350e9),
        Card("RTX4090", 24e9, 165.2e12, 82.6e12, 1.3e12, 1008e9),
    )
}
"""The cards that `--card` knows."""


def check_card(name: str | None) -> None:
    """Raise unless a card is known."""
    if name is not None:
        check_choice("card", name, CARDS)


def refuse_card(name: str | None) -> None:
    """Raise if a command that is carried out names a card."""
    if name is not None:
        raise ArcmaskError(f"--card is {name}, but it is for --dry-run; leave it out")
