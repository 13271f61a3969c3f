"""Turn a causal language model of transformers into one that can be a denoiser: full attention, and a mask token."""

from typing import Any

import torch


def attend_both_ways(model: Any) -> None:
    """Let every position of a causal model see every other. Windows that the model has remain, in both directions."""
    model.config.use_cache = False
    for module in model.modules():
        if getattr(module, "config", None) is not None:
            module.config.is_causal = False  # of the mask that transformers builds
        if getattr(module, "is_causal", None) is True:
            module.is_causal = False  # of attention without a mask


@torch.no_grad()
def add_mask_row(model: Any, mask_id: int, text_rows: int) -> None:
    """Give a new mask a row of the embedding table: the mean of the rows, scaled to their median norm.

    `text_rows` is the number of rows that stand for text. The mask's row lies behind them; the table grows if it has no
    such row. If the output embeddings are not tied to the table, theirs is 0.
    """
    table = model.get_input_embeddings().weight
    if mask_id >= table.shape[0]:
        with torch.random.fork_rng(devices=[]):  # transformers draws the new rows, which are replaced below
            model.resize_token_embeddings(mask_id + 1, mean_resizing=False)
        table = model.get_input_embeddings().weight
    rows = table[:text_rows]
    mean = rows.mean(0, dtype=torch.float64)
    length = torch.linalg.vector_norm(mean).clamp_min(torch.finfo(torch.float64).tiny)
    median = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).median()
    head = model.get_output_embeddings()
    for parameter in (head.weight, getattr(head, "bias", None)):
        if parameter is not None:
            parameter[mask_id] = 0.0
    table[mask_id] = (mean * median / length).to(table.dtype)
