"""The names of the operators, from the files that define them, so that help texts need no torch."""

from pathlib import Path

OPERATOR_NAMES = tuple(
    sorted(
        path.stem.replace("_", "-")
        for path in Path(__file__).parents[1].joinpath("feedback", "operators").glob("[a-z]*.py")
    )
)
OPERATOR_CHOICES = f"{', '.join(OPERATOR_NAMES)}, or FILE.py:FUNCTION"
