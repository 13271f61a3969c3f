"""The names of the operators, read from their file names, so that help texts need no torch."""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "feedback" / "operators"
OPERATOR_NAMES = tuple(sorted(path.stem.replace("_", "-") for path in _FOLDER.glob("[a-z]*.py")))
OPERATOR_CHOICES = f"{', '.join(OPERATOR_NAMES)}, or FILE.py:FUNCTION"
