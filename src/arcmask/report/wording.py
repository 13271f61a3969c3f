"""Write numbers as text (digits, signs, intervals, p-values), and text as LaTeX and Markdown."""

import math
from collections.abc import Iterable

MINUS, NONE = "\u2212", "\u2014"  # U+2212 is as wide as a plus sign; the dash stands for a missing value
PLUS_MINUS = "\u00b1 is a 95 % confidence interval (Student\u2019s t over seeds)."
_GREEK = {"\u03c9": "omega", "\u03b7": "eta", "\u03b5": "varepsilon", "\u03b4": "delta"}  # the paper's symbols
_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"$<$",
        ">": r"$>$",
        "\u00b1": r"$\pm$",
        MINUS: r"$-$",
        NONE: "---",
        "\u2193": r"$\downarrow$",
        "\u2191": r"$\uparrow$",
        "\u00b0": r"$^{\circ}$",
        "\u2021": r"$^{\ddagger}$",
        "\u00d7": r"$\times$",
        "\u2026": r"\dots{}",
        "\u00b5": r"$\mu$",
        **{letter: rf"$\{name}$" for letter, name in _GREEK.items()},
    }
)
_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\|*_`<"} | {"\n": " "})


def fixed(value: float | None, digits: int, *, signed: bool = False) -> str:
    """Return a number with that many decimals, or a dash for None."""
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if float(text) == 0:  # a rounded zero has no sign
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def plus_minus(mean: float, half: float | None, digits: int, *, signed: bool = False) -> str:
    """Return mean ± half, or the mean alone. A half width that rounds to zero is written as an upper bound."""
    text = fixed(mean, digits, signed=signed)
    if half is None:
        return text
    shown = fixed(half, digits)
    return f"{text} \u00b1 {shown if half == 0 or float(shown) else f'<{10**-digits:.{digits}f}'}"


def interval(low: float, high: float, digits: int) -> str:
    """Return [low, high]."""
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]"


def number(value: float) -> str:
    """Return a setting as text: whole numbers with commas, long fractions with four digits."""
    text = f"{value:,}" if isinstance(value, int) else str(value) if len(str(value)) < 8 else f"{value:.4g}"
    return MINUS + text[1:] if text.startswith("-") else text


def percentage(share: float, *, signed: bool = False) -> str:
    """Return a share as "12.3 %"."""
    return f"{fixed(100 * share, 1, signed=signed)} %"


def p_value(p: float | None) -> str:
    """Return "p = 0.012" or "p < 0.001", or nothing for None."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def count(number: int, thing: str) -> str:
    """Return "1 seed" or "3 seeds"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(items: Iterable[object]) -> str:
    """Return "a, b and c"."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def slug(text: str) -> str:
    """Return text as part of a file name or link: lower case, with dashes for everything but letters and digits."""
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower()).strip("-")


def latex(text: str) -> str:
    """Escape text for LaTeX."""
    return text.translate(_LATEX)


def markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return text.translate(_MARKDOWN)
