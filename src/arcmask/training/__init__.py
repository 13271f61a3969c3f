"""Training: the loop, its optimiser, and checkpoints that resume to the bit."""

from arcmask.settings.train import TrainConfig
from arcmask.training.trainer import Trainer, train

__all__ = ["TrainConfig", "Trainer", "train"]
