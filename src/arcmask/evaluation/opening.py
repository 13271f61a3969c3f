"""Evaluators by name: the default one, a folder, or a hub id.

Two kinds of model are refused because their scores would be wrong without looking wrong: one that looks ahead (BERT
opened as a causal LM), which finds every text nearly certain, and one with missing weights, which scores noise.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from arcmask.downloads import hub_snapshot
from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import END, Evaluator
from arcmask.evaluation.smollm2 import GGUF_SHA256, fetch_smollm2
from arcmask.files import hash_file
from arcmask.model import best_device, has_fast_bfloat16
from arcmask.model.denoiser import without_bars
from arcmask.settings import Precision
from arcmask.settings.evaluate import SMOLLM2

_CHOICES = f"choose {SMOLLM2}, the folder of a causal LM, or a hub id such as gpt2-large"
_PROBE_LENGTH = 8


def open_evaluator(name: str, *, precision: Precision = "auto") -> Evaluator:
    """Open an evaluator, on the GPU if there is one.

    `name` is smollm2-135m, the folder of a causal LM, or a hub id. Scores record the hash of its files.
    """
    if name == SMOLLM2:
        folder, sha = fetch_smollm2(), GGUF_SHA256
    else:
        try:
            folder = Path(name) if Path(name).is_dir() else hub_snapshot(name)
        except ArcmaskError as error:
            raise ArcmaskError(f"the evaluator {name!r} does not open: {error}; {_CHOICES}") from error
        sha = _hash(folder)
    model, tokenizer = _load(name, folder)
    device = best_device()
    model.to(device)
    if precision == "auto":
        precision = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return make_evaluator(name, sha, model, tokenizer, precision)


def make_evaluator(name: str, sha: str, model: Any, tokenizer: Any, precision: Precision = "float32") -> Evaluator:
    """Make an evaluator of an open model and its tokenizer, both of transformers."""
    model.eval().requires_grad_(False)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ArcmaskError(f"the tokenizer of {name} has {len(tokenizer)} entries, but its model has {rows}")
    vocabulary = tokenizer.get_vocab()
    # Instruction-tuned models call another token their end; in pre-training this one separated documents.
    start_id = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return Evaluator(
        name=name,
        sha256=sha,
        model=model,
        tokenizer=tokenizer,
        start_id=vocabulary.get(END, start_id),
        end_id=vocabulary.get(END, tokenizer.eos_token_id),
        max_length=getattr(model.config, "max_position_embeddings", None),
        precision=precision,
        has_plain_head=_probe(name, model),
    )


@torch.inference_mode()
def _probe(name: str, model: Any) -> bool:
    """Refuse a model that looks ahead. Return whether logits are the output layer applied to the hidden states."""
    count = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(_PROBE_LENGTH, device=model.device).unsqueeze(0) * 7 % count
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % count
    logits, changed = (model(input_ids=x, use_cache=False).logits[0].float() for x in (ids, other))
    scale = float(logits.std())
    if not torch.allclose(logits[:-1], changed[:-1], rtol=0, atol=1e-3 * scale):
        raise ArcmaskError(f"{name} is not a causal LM: it looks at the tokens ahead; {_CHOICES}")
    head = model.get_output_embeddings()
    if head is None:
        return False
    product = head(model.base_model(input_ids=ids, use_cache=False).last_hidden_state)[0].float()
    return product.shape == logits.shape and torch.allclose(product, logits, rtol=0, atol=1e-4 * scale)


def _load(name: str, folder: Path) -> tuple[Any, Any]:
    """Load the model and the tokenizer in a folder; no weight may be missing."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with without_bars():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArcmaskError(f"the evaluator {name} does not open as a causal LM ({reason}); {_CHOICES}") from error
    model, report = loaded
    if report["missing_keys"]:
        missing = min(report["missing_keys"])
        raise ArcmaskError(f"the evaluator {name} is not complete: {missing} is missing; {_CHOICES}")
    return model, tokenizer


def _hash(folder: Path) -> str:
    """Return one hash over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for pattern in ("*.json", "*.safetensors", "*.txt", "*.model", "*.bin"):
        for path in sorted(folder.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + hash_file(path).digest())
    return digest.hexdigest()
