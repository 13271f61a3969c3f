"""The settings of every command, as frozen dataclasses that check themselves when built.

Nothing here imports torch: `arcmask --help` reads these modules.
"""

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS = ("auto", "float32", "bfloat16")
