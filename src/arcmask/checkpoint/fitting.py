"""Build a Diffusion Transformer and its feedback from what a checkpoint says, and refuse what does not fit."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from arcmask.data import RowForm, Tokenizer, open_tokenizer
from arcmask.errors import ArcmaskError
from arcmask.feedback import SoftMask
from arcmask.model import MDLM, Denoiser, MDLMConfig
from arcmask.model.mdlm import refuse_misfits
from arcmask.rows import check_padding


def build_feedback(source: str, settings: Any) -> SoftMask:
    """Build the feedback that a file describes."""
    try:
        return SoftMask.from_settings(settings)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArcmaskError(f"{source} does not describe feedback: {error}") from error


def build_config(source: str, settings: dict[str, Any]) -> MDLMConfig:
    """Build the configuration that a file describes."""
    try:
        return MDLMConfig(**settings)
    except Exception as error:  # transformers checks types with errors of its own
        raise ArcmaskError(f"{source} does not describe a model: {' '.join(str(error).split())}") from error


def fit(source: str, config: MDLMConfig, weights: dict[str, Tensor]) -> MDLM:
    """Build a model that holds these tensors; refuse it if a key or a shape does not fit."""
    with torch.device("meta"):
        model = MDLM(config)
    refuse_misfits(source, misfits(model.state_dict(), weights))
    model.load_state_dict(weights, assign=True)
    return model.train(False)


def misfits(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Compare the keys and shapes of tensors with what is expected, as transformers' loading report does."""
    return {
        "missing_keys": expected.keys() - weights.keys(),
        "unexpected_keys": weights.keys() - expected.keys(),
        "mismatched_keys": [
            (key, weights[key].shape, expected[key].shape)
            for key in expected.keys() & weights.keys()
            if weights[key].shape != expected[key].shape
        ],
    }


def check_corpus(corpus: RowForm, denoiser: Denoiser) -> None:
    """Raise unless a corpus fits a model: its ids, mask, lengths and, if the model has one, its tokenizer."""
    if corpus.is_padded:
        check_padding(denoiser, f"the rows of {corpus.source!r}")
    corpus.check_fits(
        vocab_size=denoiser.table.shape[0],
        mask_id=denoiser.mask_id,
        max_length=denoiser.max_length,
        tokenizer=getattr(denoiser, "tokenizer", None),
    )


def default_tokenizer(vocab_size: int) -> Tokenizer | None:
    """Return GPT-2's tokenizer for a model with its vocabulary and one mask: the released model has no tokenizer."""
    if vocab_size != 50258:
        return None
    try:
        return open_tokenizer("gpt2")
    except ArcmaskError:  # its vocabulary cannot be downloaded
        return None
