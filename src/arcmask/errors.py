"""The exception that a user reads, and the checks that raise it.

Bad input (a name, a number, a file) raises `ArcmaskError` with one sentence that names the value and the choices. The
command line prints that sentence and exits with 2.
"""

import re
from collections.abc import Iterable, Sequence


class ArcmaskError(ValueError):
    """Report bad input in one sentence.

    >>> from arcmask.errors import ArcmaskError
    >>> isinstance(ArcmaskError("steps is 0, but must lie between 1 and 1,000,000"), ValueError)
    True
    """


class Stopped(Exception):  # noqa: N818  (not an error: the run did what it was told)
    """End a run that received a signal and has saved its state; the process exits with `EXIT_CODE`."""

    EXIT_CODE = 75


def printable(text: str) -> str:
    """Return the text with its control characters, except tab and newline, in a form that a terminal only shows.

    >>> from arcmask.errors import printable
    >>> print(printable("\\x1b[2J"))
    \\x1b[2J
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda match: repr(match[0])[1:-1], text)


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> ArcmaskError:
    """Return the error for a name that is not in a registry; it lists the names that are, and the nearest one first.

    >>> from arcmask.errors import unknown_name
    >>> print(unknown_name("operator", "liner", ["none", "linear"]))
    unknown operator 'liner'; did you mean 'linear'? choose one of: linear, none
    """
    choices = sorted(choices)
    question = did_you_mean(str(name), choices)
    return ArcmaskError(f"unknown {kind} {name!r};{question} choose one of: {', '.join(choices)}")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return the question " did you mean X?" for the choice that is most like a name; nothing if none is like it.

    >>> from arcmask.errors import did_you_mean
    >>> did_you_mean("--stepz", ["--steps", "--seed"])
    " did you mean '--steps'?"
    """
    from difflib import get_close_matches

    nearest = get_close_matches(name, list(choices), n=1)
    return f" did you mean {nearest[0]!r}?" if nearest else ""


def check_choice(kind: str, name: object, choices: Iterable[str]) -> None:
    """Raise unless `name` is one of the choices."""
    choices = tuple(choices)
    if name not in choices:
        raise unknown_name(kind, name, choices)


def check_band(band: Sequence[float]) -> None:
    """Raise unless a band of times is two rising numbers between 0 and 1."""
    if len(band) != 2 or not 0 <= band[0] < band[1] <= 1:
        raise ArcmaskError(f"the band is {tuple(band)}, but must be two rising numbers between 0 and 1")


def check_range(low: float, high: float, settings: object, *names: str) -> None:
    """Raise unless each of the named settings (all of a tuple) is None, "auto", or between `low` and `high`."""
    for name in names:
        value = getattr(settings, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number not in (None, "auto") and not low <= number <= high:  # also raises for NaN
                raise ArcmaskError(f"{name} is {number}, but must lie between {low:,} and {high:,}")
