"""Evaluators by name: the one that comes without a model hub, a folder, or a hub id. Checks that it can be one.

A model that looks ahead (BERT, say, opened as a causal LM) would score every text as nearly certain; one with weights
missing would score noise. Both are refused.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch

from arcmask.errors import ArcmaskError
from arcmask.evaluation.evaluator import END, Evaluator
from arcmask.evaluation.smollm2 import GGUF_SHA256, fetch_smollm2
from arcmask.files import hash_file
from arcmask.model import best_device, has_fast_bfloat16
from arcmask.model.denoiser import without_bars
from arcmask.settings import Precision
from arcmask.settings.evaluate import SMOLLM2

_CHOICES = f"{SMOLLM2}, the folder of a causal LM, or a hub id such as gpt2-large"
_PROBE_LENGTH = 8


def open_evaluator(name: str, *, precision: Precision = "auto") -> Evaluator:
    """The evaluator of a name, on the GPU if there is one. A folder or a hub id is known by the hash of its files."""
    if name == SMOLLM2:
        folder, sha = fetch_smollm2(), GGUF_SHA256
    else:
        folder = Path(name) if Path(name).is_dir() else _from_hub(name)
        sha = _hash(folder)
    model, tokenizer = _opened(name, folder)
    device = best_device()
    model.to(device)
    if precision == "auto":
        precision = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return make_evaluator(name, sha, model, tokenizer, precision)


def make_evaluator(name: str, sha: str, model: Any, tokenizer: Any, precision: Precision = "float32") -> Evaluator:
    """An evaluator out of a model and a tokenizer that are open already."""
    model.eval().requires_grad_(False)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ArcmaskError(f"the tokenizer of {name} has {len(tokenizer)} entries, but its model has {rows}")
    has_plain_head = _probe(name, model)
    known = tokenizer.get_vocab()
    # Instruction-tuned models call another token their end; in pre-training this one separated documents.
    end_id = known.get(END, tokenizer.eos_token_id)
    start_id = known.get(END, tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id)
    return Evaluator(
        name=name,
        sha256=sha,
        model=model,
        tokenizer=tokenizer,
        start_id=start_id,
        end_id=end_id,
        max_length=getattr(model.config, "max_position_embeddings", None),
        precision=precision,
        has_plain_head=has_plain_head,
    )


@torch.inference_mode()
def _probe(name: str, model: Any) -> bool:
    """Refuse a model that looks ahead; say whether its logits are its output layer's product with its hidden states."""
    count = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(_PROBE_LENGTH, device=model.device).unsqueeze(0) * 7 % count
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % count
    logits, changed = (model(input_ids=x, use_cache=False).logits[0].float() for x in (ids, other))
    scale = float(logits.std())
    if not torch.allclose(logits[:-1], changed[:-1], rtol=0, atol=1e-3 * scale):
        raise ArcmaskError(f"{name} is not a causal LM: it looks at the tokens ahead; choose {_CHOICES}")
    head = model.get_output_embeddings()
    if head is None:
        return False
    apart = head(model.base_model(input_ids=ids, use_cache=False).last_hidden_state)[0].float()
    return apart.shape == logits.shape and torch.allclose(apart, logits, rtol=0, atol=1e-4 * scale)


def _opened(name: str, folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with without_bars():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            opened: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArcmaskError(
            f"the evaluator {name} does not open as a causal LM ({reason}); choose {_CHOICES}"
        ) from error
    model, report = opened
    if report["missing_keys"]:
        missing = min(report["missing_keys"])
        raise ArcmaskError(f"the evaluator {name} is not complete: {missing} is missing; choose {_CHOICES}")
    return model, tokenizer


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ArcmaskError(
            f"the evaluator {name!r} cannot be had: there is no such folder, and the hub does not give it ({reason}); "
            f"choose {_CHOICES}"
        ) from error


def _hash(folder: Path) -> str:
    """One hash over what a model's folder holds: names and contents of weights, settings and tokenizer."""
    found = hashlib.sha256()
    for pattern in ("*.json", "*.safetensors", "*.txt", "*.model", "*.bin"):
        for path in sorted(folder.glob(pattern)):
            found.update(path.name.encode() + b"\0" + hash_file(path).digest())
    return found.hexdigest()
