"""The settings of every command, as frozen dataclasses that check themselves when built.

Nothing here imports torch: `arcmask --help` reads these modules.
"""

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS = ("auto", "float32", "bfloat16")
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float64"]
MAX_LENGTH = 2**20  # positions of a row, samples of a batch, denoising steps
MAX_SEED = 2**63 - 1  # what torch and numpy both take
