"""Any transformers model that takes `inputs_embeds`, as a denoiser.

Hidden states are what enters the model's output embeddings, whatever head comes before them. The model's own code runs
unchanged but for its last product, which is left to `logits`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcmask.errors import ArcmaskError
from arcmask.model.denoiser import Model

WRAP_FILE = "wrap.json"  # what `wrap` was told, beside the model's own files


class Wrapped(Model):
    """The denoiser surface over a transformers model; see `wrap`."""

    def __init__(self, model: Any, mask_id: int, shift: bool, max_length: int | None) -> None:
        super().__init__()
        self.model = model
        self.mask_id = mask_id
        self.max_length = max_length
        self.shift = shift

    @property
    def table(self) -> Tensor:
        """(V, D) input embeddings."""
        return self.model.get_input_embeddings().weight

    def hidden(self, embeddings: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, H): what the output embeddings multiply."""
        self.check_length(embeddings.shape[1])
        with _without_product(self.model.get_output_embeddings()):
            hidden = self.model(inputs_embeds=embeddings.to(self.table.dtype)).logits
        if self.shift:  # what is predicted at a position is for the next one; the first has only its own
            hidden = torch.cat([hidden[:, :1], hidden[:, :-1]], dim=1)
        return hidden

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """(M, H) -> (M, V), raw; an output padded past the table is cut to it."""
        return self.model.get_output_embeddings()(hidden_rows)[..., : self.table.shape[0]]

    @property
    def linear_head(self) -> nn.Linear | None:
        """The output embeddings, if `logits` is exactly their product with the rows."""
        head = self.model.get_output_embeddings()
        is_plain = type(head) is nn.Linear and head.weight.shape[0] == self.table.shape[0]
        return head if is_plain else None

    def save_weights(self, folder: Path, **options: Any) -> None:
        """Write the model with its own `save_pretrained`, and how it was wrapped."""
        self.model.save_pretrained(folder, **options)
        settings = {"mask_id": self.mask_id, "shift": self.shift, "max_length": self.max_length}
        (folder / WRAP_FILE).write_text(json.dumps(settings) + "\n")


def wrap(model: Any, mask_id: int, *, shift: bool = False, max_length: int | None = None) -> Wrapped:
    """A transformers model with an input embedding, an output embedding and `inputs_embeds` -> a denoiser.

    `shift` is for models whose output at a position predicts the next one (Dream). `max_length` is the model's own
    unless given. Four positions are run to see that hidden states and logits add up to the model's own output.
    """
    kind = type(model).__name__
    if isinstance(model, Model):
        raise ArcmaskError(f"a {kind} is a denoiser already; it need not be wrapped")
    for name in ("get_input_embeddings", "get_output_embeddings"):
        if getattr(getattr(model, name, lambda: None)(), "weight", None) is None:
            raise ArcmaskError(f"a {kind} cannot be wrapped: its {name}() gives no table")
    rows = model.get_input_embeddings().weight.shape[0]
    if not isinstance(mask_id, int) or not 0 <= mask_id < rows:
        raise ArcmaskError(f"the mask id is {mask_id}, but the model's table has rows 0 to {rows - 1}")
    if max_length is None:
        max_length = _positions(model)
    wrapped = Wrapped(model, mask_id, shift, max_length)
    _check_product(wrapped)
    return wrapped


def _positions(model: Any) -> int | None:
    """How many positions a model has. RoBERTa's kind counts them from behind the padding id on."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return getattr(model.config, "max_position_embeddings", None)


@contextmanager
def _without_product(output: nn.Module) -> Iterator[None]:
    """Let the output embeddings pass their input through, for the time of one call."""
    own = vars(output).get("forward")  # a hook of accelerate's may have put one there
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
    """Refuse a model that does more after its output embeddings than hand them on."""
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
        apart = wrapped.logits(hidden)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise ArcmaskError(f"a {name} cannot be wrapped: it does not run on inputs_embeds alone ({reason})") from error
    finally:
        model.train(was_training)
    if not torch.allclose(direct, apart, rtol=1e-3, atol=1e-3):
        raise ArcmaskError(f"a {name} cannot be wrapped: it changes its logits after the output embeddings")
