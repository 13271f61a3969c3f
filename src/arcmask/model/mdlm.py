"""The Diffusion Transformer as a model that transformers opens and arcmask runs.

Importing this module registers the model type `mdlm`, so that `AutoModelForMaskedLM.from_pretrained(folder)` opens a
released or a saved checkpoint without remote code. `arcmask.checkpoint` also reads the files beside the weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

from arcmask.errors import ArcmaskError
from arcmask.model.config import MDLMConfig, size_config
from arcmask.model.denoiser import Model, saved_by_any_process
from arcmask.model.dit import Block, DiT, VocabEmbedding
from arcmask.model.inputs import Embedded, ModelInput


class MDLM(Model, PreTrainedModel):
    """A masked diffusion language model: a `Denoiser`, and a transformers model that returns raw logits.

    >>> from arcmask.model import MDLM
    >>> model = MDLM.create("tiny", vocab_size=100)
    >>> model.table.shape, model.mask_id
    (torch.Size([100, 192]), 99)
    """

    config_class = MDLMConfig
    base_model_prefix = "backbone"
    _no_split_modules = ["Block"]  # noqa: RUF012  (transformers reads it off the class)

    def __init__(self, config: MDLMConfig) -> None:
        super().__init__(config)
        self.mask_id, self.max_length = config.mask_token_id, config.model_length
        self.backbone = DiT(config)
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def create(cls, size: str, vocab_size: int, seed: int = 0, **changes: Any) -> Self:
        """Create a model of a named size with weights drawn from a seed; `changes` replace single settings."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(size_config(size, vocab_size, **changes))

    @property
    def table(self) -> Tensor:
        """The input embeddings (V, D)."""
        return self.backbone.vocab_embed.embedding

    def hidden(self, embeddings: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the input (B, L, D) of the output layer for embeddings (B, L, D).

        `attention_mask` (B, L) is True where a position is not padding.
        """
        self.check_length(embeddings.shape[1])
        return self.backbone(embeddings, attention_mask)

    def logits(self, hidden_rows: Tensor) -> Tensor:
        """Return the raw logits (M, V) of hidden rows (M, D)."""
        return self.backbone.output_layer.linear(hidden_rows)

    @property
    def linear_head(self) -> nn.Linear:
        """The layer that computes the logits; a loss may use its weights directly."""
        return self.backbone.output_layer.linear

    def forward(
        self,
        input_ids: ModelInput | Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> MaskedLMOutput:
        """Return all logits (B, L, V) of ids (B, L) or embeddings (B, L, D), as transformers models do.

        In place of ids, `input_ids` may be any of the four kinds of input that `embed` takes.
        """
        source = input_ids if inputs_embeds is None else Embedded(inputs_embeds)
        if source is None or (input_ids is not None and inputs_embeds is not None):
            raise ArcmaskError("give either input_ids or inputs_embeds")
        embeddings = self.backbone.vocab_embed(source)
        logits = self.logits(self.hidden(embeddings, attention_mask))
        return MaskedLMOutput(logits=logits)  # type: ignore[arg-type]

    def set_dropout(self, dropout: float) -> None:
        """Change the dropout of every block."""
        self.config.dropout = dropout
        for module in self.modules():
            if isinstance(module, Block):
                module.dropout = dropout

    def set_checkpointing(self, is_on: bool) -> None:
        """Keep only the inputs of blocks, and run them again in the backward pass."""
        self.backbone.checkpoint_blocks = is_on

    @property
    def blocks(self) -> list[nn.Module]:
        """The transformer blocks."""
        return list(self.backbone.blocks)

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding module; its table is `.embedding`."""
        return self.backbone.vocab_embed

    def get_output_embeddings(self) -> nn.Module:
        """Return the last linear layer."""
        return self.linear_head

    def _init_weights(self, module: nn.Module) -> None:
        # transformers calls this for each module.
        if isinstance(module, nn.Linear | VocabEmbedding):
            module.reset_parameters()

    def save_pretrained(self, save_directory: Any, **options: Any) -> None:  # type: ignore[override]
        """Save like `save`, with the feedback and the tokenizer."""
        self.save(save_directory, **options)

    def save_weights(self, folder: Path, **options: Any) -> None:
        """Write config.json and model.safetensors."""
        with saved_by_any_process(self):
            PreTrainedModel.save_pretrained(self, folder, **options)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load as in transformers, but raise for missing or unexpected tensors and wrong shapes."""
        wants_info = kwargs.pop("output_loading_info", False)
        kwargs["ignore_mismatched_sizes"] = True
        both: Any = super().from_pretrained(pretrained_model_name_or_path, *args, output_loading_info=True, **kwargs)
        model, info = both
        refuse_misfits(str(pretrained_model_name_or_path), info)
        return (model, info) if wants_info else model


def refuse_misfits(source: str, info: Mapping[str, Any]) -> None:
    """Raise if transformers' loading report lists tensors that are missing, unexpected or of another shape."""
    problems = []
    for kind in ("missing", "unexpected"):
        keys = sorted(info[f"{kind}_keys"])
        if keys:
            problems.append(f"{kind} {_some(keys)}")
    shapes = sorted(f"{key} is {tuple(stored)}, not {tuple(model)}" for key, stored, model in info["mismatched_keys"])
    if shapes:
        problems.append(_some(shapes))
    if problems:
        raise ArcmaskError(f"the weights in {source} do not fit their config.json: {'; '.join(problems)}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


AutoConfig.register("mdlm", MDLMConfig)
AutoModelForMaskedLM.register(MDLMConfig, MDLM)
