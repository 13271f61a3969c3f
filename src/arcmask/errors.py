"""The one exception that a user is meant to read.

Everything that is wrong with what a person asked for (a name, a number, a file) raises `ArcmaskError` with one
sentence that names the value and the choices. The command line prints that sentence and exits with 2.
"""

from collections.abc import Iterable


class ArcmaskError(ValueError):
    """Bad input, said in one sentence."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ArcmaskError:
    """The error for a name that is not in a registry; it lists the names that are."""
    return ArcmaskError(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(known))}")
