"""Numbers as text: digits, signs, intervals, p-values; and text as LaTeX and Markdown have it."""

import math

MINUS, NONE = "\u2212", "\u2014"  # U+2212, which is as wide as a plus; and the dash for what is not there
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
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
}


def fixed(value: float | None, digits: int, *, signed: bool = False) -> str:
    """A number with that many digits after the point; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    if float(text) == 0:  # no sign on what is shown as zero
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def plus_minus(mean: float, half: float | None, digits: int, *, signed: bool = False) -> str:
    """mean ± half; the mean alone if there is no half width. One too small to be shown is not shown as zero."""
    text = fixed(mean, digits, signed=signed)
    if half is None:
        return text
    shown = fixed(half, digits)
    return f"{text} \u00b1 {shown if half == 0 or float(shown) else f'<{10**-digits:.{digits}f}'}"


def interval(low: float, high: float, digits: int) -> str:
    """[low, high]"""
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]"


def p_value(p: float | None) -> str:
    """p = 0.012, or p < 0.001; empty if there is none."""
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def count(number: int, thing: str) -> str:
    """1 seed, 3 seeds."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(items: list[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def markdown(text: str) -> str:
    """Text for a cell of a Markdown table."""
    escaped = "".join(f"\\{letter}" if letter in "\\|*_`<" else letter for letter in text)
    return escaped.replace("\n", " ")
