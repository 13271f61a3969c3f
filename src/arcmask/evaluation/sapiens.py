"""Sapiens, a RoBERTa of human antibody chains, out of its package: a score for antibody sequences.

It was trained without its mask token, on sequences with some residues replaced. So it scores a sequence in one pass.
The loss of a residue is -log of the probability that the model gives it at its own position, with the whole sequence in
sight. The "perplexity" of such a score is exp of the mean loss, and is not that of a causal LM.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from arcmask.checkpoint.pickles import read_torch_file
from arcmask.data.tokenizers import RESIDUES, check_symbols
from arcmask.downloads import cached_folder, download_files
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import NAMED, Evaluator
from arcmask.model import best_device
from arcmask.settings.evaluate import PerplexitySettings

NAME = "sapiens-vh"
_PACKAGE = "sapiens==1.0.3"
_FILE, _SHA256 = "checkpoint_vh.pt", "43254666e9ac0d5aa8fc120f12ac02b6ff082cd1f107c389023c1b947f214825"
_BEGIN, _PAD, _END, _FIRST_RESIDUE = 0, 1, 2, 4  # the ids of fairseq's dictionary; 3 is unknown, the last is the mask
_LENGTH = 142  # residues at most, between begin and end
# The names of fairseq's modules in transformers' RoBERTa.
_RENAMED = {
    "decoder.sentence_encoder.embed_tokens.": "roberta.embeddings.word_embeddings.",
    "decoder.sentence_encoder.embed_positions.": "roberta.embeddings.position_embeddings.",
    "decoder.sentence_encoder.emb_layer_norm.": "roberta.embeddings.LayerNorm.",
    "decoder.sentence_encoder.layers.": "roberta.encoder.layer.",
    "self_attn.q_proj.": "attention.self.query.",
    "self_attn.k_proj.": "attention.self.key.",
    "self_attn.v_proj.": "attention.self.value.",
    "self_attn.out_proj.": "attention.output.dense.",
    "self_attn_layer_norm.": "attention.output.LayerNorm.",
    ".fc1.": ".intermediate.dense.",
    ".fc2.": ".output.dense.",
    "final_layer_norm.": "output.LayerNorm.",
    "decoder.lm_head.weight": "lm_head.decoder.weight",
    "decoder.lm_head.bias": "lm_head.bias",
    "decoder.lm_head.": "lm_head.",
}


class Sapiens(Evaluator):
    """A masked LM that scores each residue at its own position."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each sequence, which has one letter for each residue."""
        for text in texts:
            check_symbols(text, RESIDUES, NAME)
            if len(text) > _LENGTH:
                raise ArcmaskError(f"{text[:20]!r}… has {len(text)} residues, but {NAME} scores up to {_LENGTH}")
        return [[_FIRST_RESIDUE + RESIDUES.index(residue) for residue in text] for text in texts]

    def check(self, settings: PerplexitySettings) -> None:
        """Raise unless each residue is scored with the whole sequence in sight."""
        if settings.start == "none":
            raise ArcmaskError(f"start is none, but {NAME} scores the first residue too; leave it out")
        if settings.context <= _LENGTH:
            raise ArcmaskError(
                f"context is {settings.context}, but {NAME} reads whole sequences; give {_LENGTH + 1} or more"
            )

    def pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Stack rows of ids into (B, L); padding is not attended to."""
        width = max(len(row) for row in rows)
        return torch.tensor([[*row, *[_PAD] * (width - len(row))] for row in rows], device=self.model.device)

    @torch.inference_mode()
    def hidden(self, ids: Tensor) -> Tensor:
        """Return the last hidden states: (B, L) -> (B, L, H)."""
        return self._run(self.model.roberta, ids).last_hidden_state[:, : ids.shape[1]]

    @torch.inference_mode()
    def losses(self, ids: Tensor, counted: Tensor, hidden: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the nats of the counted residues: ids (B, L), counted (B, L) -> (N,)."""
        logits = self._run(self.model, ids).logits[:, : ids.shape[1]][counted].float()
        logits = logits[:, _FIRST_RESIDUE : _FIRST_RESIDUE + len(RESIDUES)]  # a residue is one of twenty
        return functional.cross_entropy(logits, ids[counted] - _FIRST_RESIDUE, reduction="none")

    def _run(self, module: Any, ids: Tensor) -> Any:
        """Run a module on rows that end with the end symbol, as in training."""
        lengths = (ids != _PAD).sum(1)
        ids = torch.cat([ids, torch.full_like(ids[:, :1], _PAD)], 1)
        ids[torch.arange(len(ids), device=ids.device), lengths] = _END
        return module(input_ids=ids, attention_mask=(ids != _PAD).long())


def fetch_sapiens(package: str = _PACKAGE) -> Path:
    """Return the folder with the weights. The first call downloads 7 MB."""

    def build(folder: Path) -> None:
        download_files(f"the evaluator {NAME}", package, {f"models/v1/{_FILE}": _SHA256}, folder)

    return cached_folder(f"evaluators/{NAME}-{_SHA256[:8]}", build)


def open_sapiens() -> Sapiens:
    """Open the scorer of human heavy chains."""
    model = _build(read_torch_file(fetch_sapiens() / _FILE)["model"]).to(best_device())
    return Sapiens(
        name=NAME,
        sha256=_SHA256,
        model=model.eval().requires_grad_(False),
        tokenizer=_Names(),
        start_id=_BEGIN,
        end_id=None,
        max_length=_LENGTH + 1,  # a sequence, and the begin symbol
        precision="float32",
        has_plain_head=False,
        own_tokenizer="residues",
    )


class _Names:
    """What scores ask of a tokenizer."""

    def convert_ids_to_tokens(self, token: int) -> str:
        return "<s>" if token == _BEGIN else RESIDUES[token - _FIRST_RESIDUE]


def _build(weights: dict[str, Tensor]) -> Any:
    """Return transformers' RoBERTa with fairseq's weights; every one must fit."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    config = RobertaConfig(
        vocab_size=25,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=256,
        max_position_embeddings=146,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=_PAD,
        bos_token_id=_BEGIN,
        eos_token_id=_END,
    )
    renamed = {}
    for name, tensor in weights.items():
        for old, new in _RENAMED.items():
            name = name.replace(old, new)
        renamed[name] = tensor.float()
    model = RobertaForMaskedLM(config)
    # fairseq has no token types, and ties its output layer to the table.
    renamed["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, config.hidden_size)
    renamed["lm_head.decoder.bias"] = renamed["lm_head.bias"]
    model.load_state_dict(renamed, strict=True)
    return model


NAMED[NAME] = fetch_sapiens, open_sapiens
