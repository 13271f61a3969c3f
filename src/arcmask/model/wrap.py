"""Use any transformers model that takes `inputs_embeds` and an attention mask as a denoiser.

The hidden states are the input of the model's output embeddings. The model's own code runs unchanged, except for the
last matrix product, which `logits` computes.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from arcmask.data.tokenizers import Tokenizer, adopt_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.model.causal import add_mask_row, attend_both_ways
from arcmask.model.denoiser import Model, saved_by_any_process
from arcmask.model.dropout import is_random, set_dropout

WRAP_FILE = "wrap.json"  # the arguments of `wrap`, beside the model's own files
_REFUSALS = (TypeError, ValueError, RuntimeError, AttributeError, IndexError)  # of a model that does not take the input


class Layout(Protocol):
    """A form in which a model's files are written."""

    def write(self, wrapped: "Wrapped", folder: Path, **options: Any) -> None:
        """Write the weights and the configuration of a model into a folder."""


class Wrapped(Model):
    """A transformers model as a denoiser; see `wrap`.

    `text_rows` is the number of rows of the table that stand for text. The rows behind them get no probability, and of
    a model that was causal, neither does the mask.
    """

    def __init__(
        self,
        model: Any,
        mask_id: int,
        *,
        shift: bool = False,
        max_length: int | None = None,
        bidirectional: bool = False,
        text_rows: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        self.model, self.training = model, model.training
        self.mask_id = mask_id
        self.max_length = max_length
        self.shift = shift
        self.bidirectional = bidirectional
        self.text_rows = self.table.shape[0] if text_rows is None else min(text_rows, self.table.shape[0])
        self.layout = layout

    @property
    def table(self) -> Tensor:
        """The input embeddings (V, D)."""
        return self.model.get_input_embeddings().weight

    def hidden(self, embeddings: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the input (B, L, H) of the output embeddings for embeddings (B, L, D).

        `attention_mask` (B, L) is True where a position is not padding.
        """
        self.check_length(embeddings.shape[1])
        options = {} if attention_mask is None else {"attention_mask": attention_mask.long()}
        with _replaced(self.model.get_output_embeddings(), lambda hidden: hidden):
            hidden = self.model(inputs_embeds=embeddings.to(self.table.dtype), **options).logits
        if self.shift:  # an output predicts the next position; the first position has only its own output
            hidden = torch.cat([hidden[:, :1], hidden[:, :-1]], dim=1)
        return hidden

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """Return the raw logits (M, V) of hidden rows (M, H). A token that the tokenizer does not know has -inf."""
        logits = self.product(hidden_rows)
        if self.text_rows < logits.shape[-1]:
            logits[..., self.text_rows :] = -torch.inf
        if self.bidirectional:
            logits[..., self.mask_id] = -torch.inf
        return logits

    def product(self, hidden_rows: Tensor) -> Tensor:
        """Return the output (M, V) of the output embeddings, without columns that pad it past the table."""
        return self.model.get_output_embeddings()(hidden_rows)[..., : self.table.shape[0]]

    @property
    def linear_head(self) -> nn.Linear | None:
        """The output embeddings, if the logits are exactly their product with the rows."""
        head = self.model.get_output_embeddings()
        is_plain = type(head) is nn.Linear and head.weight.shape[0] == self.table.shape[0]
        return head if is_plain else None

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers in the longest list of modules of the model."""
        lists = [module for module in self.model.modules() if isinstance(module, nn.ModuleList)]
        return list(max(lists, key=len, default=()))

    def set_dropout(self, dropout: float) -> None:
        """Change every dropout of the model. Raise if some of it cannot be reached."""
        set_dropout(self.model, 0.0)
        ids = torch.full((2, 4), self.mask_id, device=self.table.device)
        if is_random(self.model, self.table[ids]):
            raise ArcmaskError(
                f"dropout is {dropout:g}, but a {type(self.model).__name__} has dropout that cannot be changed from "
                "outside; change it in the model's own configuration, and leave out dropout"
            )
        set_dropout(self.model, dropout)

    def set_checkpointing(self, is_on: bool) -> None:
        """Switch the model's own gradient checkpointing on or off."""
        if is_on and not getattr(self.model, "supports_gradient_checkpointing", False):
            raise ArcmaskError(
                f"checkpoint_blocks is true, but a {type(self.model).__name__} has no gradient checkpointing; leave it "
                "out"
            )
        if is_on:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        elif getattr(self.model, "is_gradient_checkpointing", False):
            self.model.gradient_checkpointing_disable()

    def save_weights(self, folder: Path, **options: Any) -> None:
        """Write the model with its own `save_pretrained`, and the arguments of `wrap`; or in its own layout."""
        if self.layout is not None:
            self.layout.write(self, folder, **options)
            return
        with saved_by_any_process(self.model):
            self.model.save_pretrained(folder, **options)
        settings = {"mask_id": self.mask_id, "shift": self.shift, "max_length": self.max_length}
        if self.bidirectional:
            settings["bidirectional"] = True
        (folder / WRAP_FILE).write_text(json.dumps(settings) + "\n")


def wrap(
    model: Any,
    mask_id: int | None = None,
    *,
    tokenizer: Any = None,
    shift: bool | None = None,
    max_length: int | None = None,
    bidirectional: bool = False,
    mask_token: str | None = None,
) -> Wrapped:
    """Return a denoiser for a transformers model with input embeddings, output embeddings and `inputs_embeds`.

    `tokenizer`, of transformers or of arcmask, turns prompts into ids and samples into text. It also says which id is
    the mask, unless `mask_id` does. If it has [CLS] and [SEP], they enclose every sample, and special tokens are never
    sampled. Rows of the table that it does not know get no probability. `max_length` defaults to the model's own.

    `bidirectional` is for causal models: every position then sees every other. `shift` is for models whose output at a
    position predicts the next position; it is the default for causal models. `mask_token` is the mask of a causal model
    as text. If it is new, it gets a row of the table, the mean of the rows scaled to their median norm. Both change the
    model that is given. A few positions are run to check that hidden states and logits reproduce the model's own
    output, and that padding is left out.

    >>> import arcmask
    >>> from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
    >>> config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    >>> arcmask.wrap(BertForMaskedLM(config), mask_id=4).table.shape
    torch.Size([50, 32])
    >>> causal = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=1, n_head=2))
    >>> denoiser = arcmask.wrap(causal, bidirectional=True, mask_token="<mask>")
    >>> denoiser.table.shape, denoiser.mask_id, denoiser.shift
    (torch.Size([51, 32]), 50, True)
    """
    _check_kind(model, bidirectional, mask_id, mask_token)
    rows = model.get_input_embeddings().weight.shape[0]
    if tokenizer is not None:
        tokenizer = adopt_tokenizer(tokenizer, mask_id, mask_token)
        mask_id = tokenizer.mask_id
    is_new = mask_token is not None if tokenizer is None else tokenizer.adds_mask
    if bidirectional and is_new:
        mask_id = rows if mask_id is None else mask_id
        _check_size(tokenizer, rows, added=1)
        add_mask_row(model, mask_id, min(rows, mask_id))
    _check_size(tokenizer, model.get_input_embeddings().weight.shape[0])
    if bidirectional:
        attend_both_ways(model)
    wrapped = Wrapped(
        model,
        _check_mask(model, mask_id),
        shift=bidirectional if shift is None else shift,
        max_length=_positions(model) if max_length is None else max_length,
        bidirectional=bidirectional,
        text_rows=None if tokenizer is None else tokenizer.size,
    )
    wrapped.tokenizer = tokenizer
    check_wrapped(wrapped, both_ways=bidirectional)
    return wrapped


def _check_kind(model: Any, bidirectional: bool, mask_id: int | None, mask_token: str | None) -> None:
    """Raise for what is no transformers model with two tables, and for settings that do not go together."""
    kind = type(model).__name__
    if isinstance(model, Model):
        raise ArcmaskError(f"a {kind} is a denoiser already; it need not be wrapped")
    for name in ("get_input_embeddings", "get_output_embeddings"):
        if getattr(getattr(model, name, lambda: None)(), "weight", None) is None:
            raise ArcmaskError(f"a {kind} cannot be wrapped: its {name}() gives no table")
    check_mask_token(bidirectional, mask_id, mask_token)


def check_mask_token(bidirectional: bool, mask_id: int | None, mask_token: str | None) -> None:
    """Raise if a mask token is given for a model that is not to be changed, or together with an id."""
    if mask_token is None:
        return
    if not bidirectional:
        raise ArcmaskError(f"the mask token {mask_token!r} is for a causal model; give bidirectional=True too")
    if mask_id is not None:
        raise ArcmaskError(f"the mask is given twice, as {mask_token!r} and as {mask_id}; give one of them")
    if not mask_token or mask_token.isspace():
        raise ArcmaskError(f"the mask token is {mask_token!r}, but must have visible characters")


def _check_size(tokenizer: Tokenizer | None, rows: int, added: int = 0) -> None:
    if tokenizer is not None and tokenizer.size > rows + added:
        raise ArcmaskError(f"the tokenizer {tokenizer.name} has {tokenizer.size} entries, but the model has {rows}")


def _check_mask(model: Any, mask_id: int | None) -> int:
    rows = model.get_input_embeddings().weight.shape[0]
    if mask_id is None:
        raise ArcmaskError("the mask id is None; give mask_id, or a tokenizer with a mask token")
    if not isinstance(mask_id, int) or not 0 <= mask_id < rows:
        raise ArcmaskError(f"the mask id is {mask_id}, but the model's table has rows 0 to {rows - 1}")
    return mask_id


def _positions(model: Any) -> int | None:
    """Return how many positions a model has. RoBERTa numbers them from its padding id + 1."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return getattr(model.config, "max_position_embeddings", None)


@contextmanager
def _replaced(output: nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Make the output embeddings compute something else."""
    own = vars(output).get("forward")  # accelerate may have set one
    output.forward = forward
    try:
        yield
    finally:
        if own is None:
            del output.forward
        else:
            output.forward = own


@torch.no_grad()
def check_wrapped(wrapped: Wrapped, *, both_ways: bool) -> None:
    """Raise if a model cannot be a denoiser: if it does not run on embeddings, or if its output is not what it seems.

    With `both_ways`, every position must see every other. Two rows of four positions are run, which differ in the last
    one, as embeddings and as ids, and then the first one with two kinds of padding.
    """
    model, name = wrapped.model, type(wrapped.model).__name__
    if model.get_output_embeddings().weight.shape[0] < wrapped.table.shape[0]:
        raise ArcmaskError(f"a {name} cannot be wrapped: it has logits for fewer tokens than its table has rows")
    device, other = wrapped.table.device, _another_id(wrapped)
    ids = torch.full((2, 4), wrapped.mask_id, device=device)
    ids[1, 3] = other
    padded = torch.full((2, 6), wrapped.mask_id, device=device)
    padded[1, 4:] = other
    is_text = torch.arange(6, device=device).expand(2, 6) < 4
    was_training, was_shifted = model.training, wrapped.shift
    model.eval()
    wrapped.shift = False
    try:
        direct, inputs, outputs = _run(wrapped, wrapped.table[ids])
        logits = wrapped.product(inputs)
    except _REFUSALS as error:
        raise _refusal(name, "it does not run on inputs_embeds alone", error) from error
    else:
        try:
            beside = wrapped.hidden(wrapped.table[padded], is_text)
        except _REFUSALS as error:
            raise _refusal(name, "it does not take an attention mask", error) from error
        try:
            reads_rows = _reads_rows(wrapped, ids.masked_fill(ids == _pad_id(model), other))
        except _REFUSALS:
            reads_rows = True  # a model of embeddings alone
    finally:
        model.train(was_training)
        wrapped.shift = was_shifted
    if torch.equal(inputs[0, 3], inputs[1, 3]):
        raise ArcmaskError(f"a {name} cannot be wrapped: it ignores inputs_embeds")
    if not torch.allclose(direct, logits, rtol=1e-3, atol=1e-3) or not torch.allclose(outputs, _LOUD * inputs):
        raise ArcmaskError(f"a {name} cannot be wrapped: it changes its logits after the output embeddings")
    if not reads_rows:
        raise ArcmaskError(
            f"a {name} cannot be wrapped: it scales or changes the rows of its embedding table, so inputs_embeds are "
            "not what it computes from ids"
        )
    if both_ways and torch.equal(inputs[0, 0], inputs[1, 0]):
        raise ArcmaskError(f"a {name} cannot be bidirectional: its first position still does not see the last one")
    if not _is_close(beside[0, :4], beside[1, :4], 1e-6) or not _is_close(beside[0, :4], inputs[0], _loose(inputs)):
        raise ArcmaskError(f"a {name} cannot be wrapped: it ignores the attention mask, so padding would change it")


_LOUD = 1000.0  # logits of this size show a soft cap


def _run(wrapped: Wrapped, embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a model's own logits, the input of its output embeddings, and what becomes of a much larger output."""
    inputs: list[Tensor] = []

    def forward(hidden: Tensor) -> Tensor:
        inputs.append(hidden)
        return _LOUD * hidden

    direct = wrapped.model(inputs_embeds=embeddings).logits[..., : wrapped.table.shape[0]]
    with _replaced(wrapped.model.get_output_embeddings(), forward):
        outputs = wrapped.model(inputs_embeds=embeddings).logits
    return direct, inputs[-1], outputs


def _reads_rows(wrapped: Wrapped, ids: Tensor) -> bool:
    """Return whether a model computes the same from ids as from their rows of the table."""
    with _replaced(wrapped.model.get_output_embeddings(), lambda hidden: hidden):
        from_ids = wrapped.model(input_ids=ids).logits
    from_rows = wrapped.hidden(wrapped.table[ids])
    return _is_close(from_ids, from_rows, _loose(from_rows))


def _pad_id(model: Any) -> int:
    """Return the id of padding, which has no position of its own in some models; -1 if there is none."""
    pad_id = getattr(getattr(model, "config", None), "pad_token_id", None)
    return pad_id if isinstance(pad_id, int) else -1


def _another_id(wrapped: Wrapped) -> int:
    """Return an id that is neither the mask nor padding."""
    after = ((wrapped.mask_id + step) % wrapped.table.shape[0] for step in (1, 2))
    return next(number for number in after if number != _pad_id(wrapped.model))


def _is_close(first: Tensor, second: Tensor, share: float) -> bool:
    """Return whether two tensors differ by no more than a share of their largest value."""
    largest = max(float(first.abs().max()), float(second.abs().max()))
    return float((first.double() - second.double()).abs().max()) <= share * largest


def _loose(hidden: Tensor) -> float:
    """Return the share by which a row may differ from itself on another path, as attention takes beside padding."""
    return 1e-3 if hidden.dtype in (torch.float32, torch.float64) else 5e-2


def _refusal(name: str, problem: str, error: Exception) -> ArcmaskError:
    reason = str(error).partition("\n")[0]
    return ArcmaskError(f"a {name} cannot be wrapped: {problem} ({reason})")
