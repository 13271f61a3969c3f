"""Use any transformers model that takes `inputs_embeds` as a denoiser.

The hidden states are the input of the model's output embeddings. The model's own code runs unchanged, except for the
last matrix product, which `logits` computes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcmask.data.tokenizers import adopt_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.model.denoiser import Model

WRAP_FILE = "wrap.json"  # the arguments of `wrap`, beside the model's own files


class Wrapped(Model):
    """A transformers model as a denoiser; see `wrap`."""

    def __init__(self, model: Any, mask_id: int, shift: bool, max_length: int | None) -> None:
        super().__init__()
        self.model = model
        self.mask_id = mask_id
        self.max_length = max_length
        self.shift = shift

    @property
    def table(self) -> Tensor:
        """The input embeddings (V, D)."""
        return self.model.get_input_embeddings().weight

    def hidden(self, embeddings: Tensor) -> Tensor:
        """Return the input (B, L, H) of the output embeddings for embeddings (B, L, D)."""
        self.check_length(embeddings.shape[1])
        with _without_product(self.model.get_output_embeddings()):
            hidden = self.model(inputs_embeds=embeddings.to(self.table.dtype)).logits
        if self.shift:  # an output predicts the next position; the first position has only its own output
            hidden = torch.cat([hidden[:, :1], hidden[:, :-1]], dim=1)
        return hidden

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """Return the raw logits (M, V) of hidden rows (M, H), without columns that pad the output past the table."""
        return self.model.get_output_embeddings()(hidden_rows)[..., : self.table.shape[0]]

    @property
    def linear_head(self) -> nn.Linear | None:
        """The output embeddings, if the logits are exactly their product with the rows."""
        head = self.model.get_output_embeddings()
        is_plain = type(head) is nn.Linear and head.weight.shape[0] == self.table.shape[0]
        return head if is_plain else None

    def save_weights(self, folder: Path, **options: Any) -> None:
        """Write the model with its own `save_pretrained`, and the arguments of `wrap`."""
        self.model.save_pretrained(folder, **options)
        settings = {"mask_id": self.mask_id, "shift": self.shift, "max_length": self.max_length}
        (folder / WRAP_FILE).write_text(json.dumps(settings) + "\n")


def wrap(
    model: Any,
    mask_id: int | None = None,
    *,
    tokenizer: Any = None,
    shift: bool = False,
    max_length: int | None = None,
) -> Wrapped:
    """Return a denoiser for a transformers model with input embeddings, output embeddings and `inputs_embeds`.

    `tokenizer`, of transformers or of arcmask, turns prompts into ids and samples into text. It also says which id is
    the mask, unless `mask_id` does. If it has [CLS] and [SEP], they enclose every sample, and special tokens are never
    sampled. `shift` is for models whose output at a position predicts the next position (Dream). `max_length` defaults
    to the model's own. Four positions are run to check that hidden states and logits reproduce the model's own output.

    >>> import arcmask
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    >>> arcmask.wrap(BertForMaskedLM(config), mask_id=4).table.shape
    torch.Size([50, 32])
    """
    kind = type(model).__name__
    if isinstance(model, Model):
        raise ArcmaskError(f"a {kind} is a denoiser already; it need not be wrapped")
    for name in ("get_input_embeddings", "get_output_embeddings"):
        if getattr(getattr(model, name, lambda: None)(), "weight", None) is None:
            raise ArcmaskError(f"a {kind} cannot be wrapped: its {name}() gives no table")
    rows = model.get_input_embeddings().weight.shape[0]
    if tokenizer is not None:
        tokenizer = adopt_tokenizer(tokenizer, mask_id)
        mask_id = tokenizer.mask_id
        if tokenizer.size > rows:
            raise ArcmaskError(f"the tokenizer {tokenizer.name} has {tokenizer.size} entries, but the model has {rows}")
    if mask_id is None:
        raise ArcmaskError("the mask id is None; give mask_id, or a tokenizer with a mask token")
    if not isinstance(mask_id, int) or not 0 <= mask_id < rows:
        raise ArcmaskError(f"the mask id is {mask_id}, but the model's table has rows 0 to {rows - 1}")
    if max_length is None:
        max_length = _positions(model)
    wrapped = Wrapped(model, mask_id, shift, max_length)
    wrapped.tokenizer = tokenizer
    _check_product(wrapped)
    return wrapped


def _positions(model: Any) -> int | None:
    """Return how many positions a model has. RoBERTa numbers them from its padding id + 1."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return getattr(model.config, "max_position_embeddings", None)


@contextmanager
def _without_product(output: nn.Module) -> Iterator[None]:
    """Make the output embeddings return their input."""
    own = vars(output).get("forward")  # accelerate may have set one
    output.forward = lambda hidden: hidden
    try:
        yield
    finally:
        if own is None:
            del output.forward
        else:
            output.forward = own


@torch.no_grad()
def _check_product(wrapped: Wrapped) -> None:
    """Raise if the model does not run on embeddings alone, or changes the result of its output embeddings."""
    model, name = wrapped.model, type(wrapped.model).__name__
    if model.get_output_embeddings().weight.shape[0] < wrapped.table.shape[0]:
        raise ArcmaskError(f"a {name} cannot be wrapped: it has logits for fewer tokens than its table has rows")
    was_training = model.training
    model.eval()
    try:
        embeddings = wrapped.table[torch.full((1, 4), wrapped.mask_id, device=wrapped.table.device)]
        direct = model(inputs_embeds=embeddings).logits[..., : wrapped.table.shape[0]]
        with _without_product(model.get_output_embeddings()):
            hidden = model(inputs_embeds=embeddings).logits
        logits = wrapped.logits(hidden)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise ArcmaskError(f"a {name} cannot be wrapped: it does not run on inputs_embeds alone ({reason})") from error
    finally:
        model.train(was_training)
    if not torch.allclose(direct, logits, rtol=1e-3, atol=1e-3):
        raise ArcmaskError(f"a {name} cannot be wrapped: it changes its logits after the output embeddings")
