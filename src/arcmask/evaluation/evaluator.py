"""A causal LM that scores text: its weights, its tokenizer, and how a text becomes its tokens.

Knows transformers' causal LMs; knows nothing of scores. Hidden states and logits are apart where the model allows it,
so that logits exist for a few rows at a time. Texts in a batch are padded on the right: in a causal model, which is
checked, nothing to the right of a token has a say in it, so that no mask is needed.

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

END = "<|endoftext|>"  # how end-of-text is written in samples, whoever's token it is
# Logits that exist at a time.
CHUNK = 1 << 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """`open_evaluator` makes one. `start_id` goes before a text; `end_id` is what `<|endoftext|>` in a text becomes."""

    name: str
    sha256: str
    model: Any
    tokenizer: Any
    start_id: int | None
    end_id: int | None
    max_length: int | None
    precision: Precision  # float32 or bfloat16
    has_plain_head: bool  # whether logits are the output layer's product with the hidden states, and nothing more

    @property
    def identity(self) -> dict[str, Any]:
        """What everything that it computes depends on."""
        return {"evaluator": self.name, "evaluator_sha256": self.sha256, "precision": self.precision}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text. Of all special tokens only `<|endoftext|>` is read out of it."""
        parts = [text.split(END) for text in texts]
        flat = iter(self._encode_plain([part for split in parts for part in split]))
        found = []
        for split in parts:
            ids = next(flat)
            for _ in split[1:]:
                ids = [*ids, *self._end, *next(flat)]
            found.append(ids)
        return found

    @property
    def _end(self) -> list[int]:
        return [] if self.end_id is None else [self.end_id]

    def _encode_plain(self, texts: list[str]) -> list[list[int]]:
        if self.tokenizer.is_fast:
            backend = self.tokenizer.backend_tokenizer
            backend.encode_special_tokens = True
            return [found.ids for found in backend.encode_batch_fast(texts, add_special_tokens=False)]
        settings = {"add_special_tokens": False, "split_special_tokens": True}
        return [self.tokenizer.encode(text, **settings) for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Rows of tokens side by side, (B, L); what they are padded with has no say in anything."""
        width = max(len(row) for row in rows)
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.model.device)

    @torch.inference_mode()
    def hidden(self, ids: Tensor) -> Tensor:
        """(B, L) -> the last hidden states (B, L, H), as the output layer gets them."""
        with autocast(self.precision, ids.device):
            return self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state

    @torch.inference_mode()
    def losses(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Tokens (B, L) and which of them to predict (B, L), none in the first column -> nats of those (N,)."""
        targets, wanted = ids[:, 1:][wanted[:, 1:]], wanted[:, 1:]
        if not self.has_plain_head:
            with autocast(self.precision, ids.device):
                logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1][wanted]
            return functional.cross_entropy(logits.float(), targets, reduction="none")
        rows = self.hidden(ids)[:, :-1][wanted]
        head = self.model.get_output_embeddings()
        height = max(1, CHUNK // head.weight.shape[0])
        found = []
        for start in range(0, len(rows), height):
            part = slice(start, start + height)
            with autocast(self.precision, ids.device):
                logits = head(rows[part])
            found.append(functional.cross_entropy(logits.float(), targets[part], reduction="none"))
        return torch.cat(found) if found else rows.new_zeros(0)

    def rows_at_a_time(self, width: int, batch_tokens: int | None) -> int:
        """How many rows of that width make a batch."""
        if batch_tokens is None:  # on a processor, larger ones no longer fit its cache and are slower
            batch_tokens = 1024 if self.model.device.type == "cpu" else 16384
        if not self.has_plain_head:  # all logits of a batch exist at once
            batch_tokens = min(batch_tokens, 4 * CHUNK // self.model.get_input_embeddings().weight.shape[0])
        return max(1, batch_tokens // width)


def in_batches(evaluator: Evaluator, lengths: Sequence[int], batch_tokens: int | None) -> Iterator[list[int]]:
    """Places of rows, batch by batch: rows of like length together, the longest first."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        count = evaluator.rows_at_a_time(max(1, lengths[order[start]]), batch_tokens)
        yield order[start : start + count]
        start += count
