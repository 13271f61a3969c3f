"""A causal LM that scores text: its weights, its tokenizer, and how a text becomes its tokens.

Hidden states and logits are separate where the model allows it, so that logits exist for a few rows at a time. Texts in
a batch are padded on the right. That needs no attention mask: in a causal model (which is checked) later tokens do not
affect earlier ones.

Shapes: B texts, L tokens, H hidden width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from arcmask.model import autocast
from arcmask.settings import Precision

END = "<|endoftext|>"  # how samples write end-of-text, whatever the evaluator calls it
CHUNK = 1 << 24  # logits that exist at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """A causal LM, as `open_evaluator` returns it. `start_id` precedes a text, `end_id` stands for `<|endoftext|>`."""

    name: str
    sha256: str
    model: Any
    tokenizer: Any
    start_id: int | None
    end_id: int | None
    max_length: int | None
    precision: Precision  # float32 or bfloat16
    has_plain_head: bool  # whether logits are the output layer applied to the hidden states, and nothing more

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the evaluator that its results depend on."""
        return {"evaluator": self.name, "evaluator_sha256": self.sha256, "precision": self.precision}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. `<|endoftext|>` is the only special token that is read out of a text."""
        parts = [text.split(END) for text in texts]
        encoded = iter(self._encode_plain([part for split in parts for part in split]))
        end = [] if self.end_id is None else [self.end_id]
        rows = []
        for split in parts:
            ids = next(encoded)
            for _ in split[1:]:
                ids = [*ids, *end, *next(encoded)]
            rows.append(ids)
        return rows

    def _encode_plain(self, texts: list[str]) -> list[list[int]]:
        if self.tokenizer.is_fast:
            backend = self.tokenizer.backend_tokenizer
            backend.encode_special_tokens = True
            return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
        settings = {"add_special_tokens": False, "split_special_tokens": True}
        return [self.tokenizer.encode(text, **settings) for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Stack rows of ids into (B, L). The padding affects no result."""
        width = max(len(row) for row in rows)
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.model.device)

    @torch.inference_mode()
    def hidden(self, ids: Tensor) -> Tensor:
        """Return the last hidden states, the input of the output layer: (B, L) -> (B, L, H)."""
        with autocast(self.precision, ids.device):
            return self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state

    @torch.inference_mode()
    def losses(self, ids: Tensor, counted: Tensor) -> Tensor:
        """Return the nats of the counted tokens: ids (B, L), counted (B, L) and False in the first column -> (N,)."""
        targets, counted = ids[:, 1:][counted[:, 1:]], counted[:, 1:]
        if not self.has_plain_head:
            with autocast(self.precision, ids.device):
                logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1][counted]
            return functional.cross_entropy(logits.float(), targets, reduction="none")
        rows = self.hidden(ids)[:, :-1][counted]
        head = self.model.get_output_embeddings()
        height = max(1, CHUNK // head.weight.shape[0])
        losses = [rows.new_zeros(0, dtype=torch.float32)]
        for start in range(0, len(rows), height):
            part = slice(start, start + height)
            with autocast(self.precision, ids.device):
                logits = head(rows[part])
            losses.append(functional.cross_entropy(logits.float(), targets[part], reduction="none"))
        return torch.cat(losses)

    def batches(self, lengths: Sequence[int], batch_tokens: int | None) -> Iterator[list[int]]:
        """Yield the indices of rows in batches: rows of similar length together, the longest first."""
        if batch_tokens is None:  # on a CPU, larger batches no longer fit its cache and are slower
            batch_tokens = 1024 if self.model.device.type == "cpu" else 16384
        if not self.has_plain_head:  # all logits of a batch exist at once
            batch_tokens = min(batch_tokens, 4 * CHUNK // self.model.get_input_embeddings().weight.shape[0])
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        start = 0
        while start < len(order):
            count = max(1, batch_tokens // max(1, lengths[order[start]]))
            yield order[start : start + count]
            start += count
