"""Load, save and convert checkpoints: folders, training runs, Lightning files and hub repositories."""

from arcmask.checkpoint.loading import convert, find_checkpoint, load, load_for_use, save

__all__ = ["convert", "find_checkpoint", "load", "load_for_use", "save"]
