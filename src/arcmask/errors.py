"""The exception that a user reads, and the checks that raise it.

Bad input (a name, a number, a file) raises `ArcmaskError` with one sentence that names the value and the choices. The
command line prints that sentence and exits with 2.
"""

from collections.abc import Iterable


class ArcmaskError(ValueError):
    """Report bad input in one sentence.

    >>> from arcmask.errors import ArcmaskError
    >>> isinstance(ArcmaskError("steps is 0, but must be 1 or more"), ValueError)
    True
    """


class Stopped(Exception):  # noqa: N818  (not an error: the run did what it was told)
    """End a run that received a signal and has saved its state; the process exits with `EXIT_CODE`."""

    EXIT_CODE = 75


def unknown_name(kind: str, name: object, choices: Iterable[str]) -> ArcmaskError:
    """Return the error for a name that is not in a registry; it lists the names that are."""
    return ArcmaskError(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(choices))}")


def check_choice(kind: str, name: object, choices: Iterable[str]) -> None:
    """Raise unless `name` is one of the choices."""
    choices = tuple(choices)
    if name not in choices:
        raise unknown_name(kind, name, choices)


def check_at_least(minimum: int, settings: object, *names: str) -> None:
    """Raise unless each of the named settings is None or at least `minimum`."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < minimum:
            raise ArcmaskError(f"{name} is {value}, but must be {minimum} or more")
