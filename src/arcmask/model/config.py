"""The configuration of the Diffusion Transformer, with the names of the released `config.json`, and named sizes."""

from typing import Any

from transformers import PretrainedConfig

from arcmask.errors import ArcmaskError, check_choice

SIZES: dict[str, dict[str, int]] = {
    "nano": {"hidden_dim": 64, "cond_dim": 128, "n_blocks": 2, "n_heads": 4, "model_length": 128},
    "tiny": {"hidden_dim": 192, "cond_dim": 16, "n_blocks": 6, "n_heads": 4, "model_length": 128},
    "mini": {"hidden_dim": 384, "cond_dim": 128, "n_blocks": 8, "n_heads": 6, "model_length": 256},
    "small": {"hidden_dim": 768, "cond_dim": 128, "n_blocks": 12, "n_heads": 12, "model_length": 1024},
    "medium": {"hidden_dim": 1024, "cond_dim": 128, "n_blocks": 24, "n_heads": 16, "model_length": 1024},
}
"""The sizes of a Diffusion Transformer by name. `small` is that of the released 169M model."""


class MDLMConfig(PretrainedConfig):
    """The configuration of a masked diffusion model in the layout of `kuleshov-group/mdlm-owt`.

    `mask_token_id` is an addition. In the released layout it is always the last id.
    """

    model_type = "mdlm"
    # The names of the same settings in transformers.
    attribute_map = {  # noqa: RUF012  (transformers reads it off the class)
        "hidden_size": "hidden_dim",
        "num_hidden_layers": "n_blocks",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "model_length",
    }

    def __init__(
        self,
        vocab_size: int = 50258,
        model_length: int = 1024,
        hidden_dim: int = 768,
        cond_dim: int = 128,
        n_blocks: int = 12,
        n_heads: int = 12,
        dropout: float = 0.1,
        time_conditioning: bool = False,
        mask_token_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.model_length = model_length
        self.hidden_dim = hidden_dim
        self.cond_dim = cond_dim
        self.n_blocks = n_blocks
        self.n_heads = n_heads
        self.dropout = dropout
        self.time_conditioning = time_conditioning
        self.mask_token_id = vocab_size - 1 if mask_token_id is None else mask_token_id
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)
        self._check()

    def _check(self) -> None:
        for name in ("vocab_size", "model_length", "hidden_dim", "cond_dim", "n_blocks", "n_heads"):
            value, most = getattr(self, name), 1000 if name == "n_blocks" else 10**8
            if type(value) is not int or not 1 <= value <= most:
                raise ArcmaskError(f"the model's {name} is {value!r}, but must be a whole number from 1 to {most:,}")
        if not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise ArcmaskError(f"the model's dropout is {self.dropout!r}, but must lie in [0, 1)")
        if self.hidden_dim % (2 * self.n_heads):
            raise ArcmaskError(
                f"hidden_dim is {self.hidden_dim}, but must be a multiple of twice n_heads, {2 * self.n_heads}, "
                "so that each head has an even width to rotate"
            )
        if type(self.mask_token_id) is not int or not 0 <= self.mask_token_id < self.vocab_size:
            raise ArcmaskError(f"mask_token_id is {self.mask_token_id}, but ids run from 0 to {self.vocab_size - 1}")
        if self.time_conditioning:
            raise ArcmaskError(
                "time_conditioning is true, but arcmask handles only models without it (their time input is zero); "
                "feedback is defined for those alone"
            )


def size_config(size: str, vocab_size: int, **changes: Any) -> MDLMConfig:
    """Return the configuration of a named size for a vocabulary; `changes` replace single settings.

    >>> from arcmask.model import size_config
    >>> size_config("tiny", 100, dropout=0.0).hidden_dim
    192
    """
    check_choice("model size", size, SIZES)
    return MDLMConfig(**{"vocab_size": vocab_size, **SIZES[size], **changes})
