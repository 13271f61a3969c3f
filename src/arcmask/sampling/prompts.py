"""What samples start from: prompts as text or ids, for all samples or one for each, or out of a file.

Shapes: L positions.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arcmask.data.tokenizers import FASTA, check_symbols
from arcmask.errors import ArcmaskError
from arcmask.model import Denoiser
from arcmask.rows import PaddedRows, Rows
from arcmask.sampling.sample_file import read_samples
from arcmask.settings.sample import SampleConfig

HOLE = "[MASK]"
_SHOWN_HOLE = "\N{WHITE SQUARE}"  # in errors, where a hole counts as one position
Prompt = str | Sequence[int] | Tensor


def start_tokens(
    denoiser: Denoiser, prompt: Prompt | Sequence[Prompt] | None, length: int | Sequence[int] | None, num: int
) -> Rows:
    """Return the prompt of each sample, followed by masks up to its length, as (num, L), padded if lengths differ.

    If the denoiser's tokenizer has [CLS] and [SEP], they enclose each row, and the length counts them.
    """
    prompts, is_shared = _as_list(prompt)
    if not is_shared and len(prompts) != num:
        raise ArcmaskError(f"there are {len(prompts)} prompts for {num} samples")
    if length is not None and not isinstance(length, int):
        if len(length) != num:
            raise ArcmaskError(f"there are {len(length)} lengths for {num} samples")
        prompts, is_shared = prompts * num if is_shared else prompts, False
    lengths = [length] * len(prompts) if length is None or isinstance(length, int) else [int(one) for one in length]
    filled = [_filled(denoiser, one, own) for one, own in zip(prompts, lengths, strict=True)]
    rows = _stacked(denoiser, filled)
    if isinstance(rows, PaddedRows):
        return rows
    return rows.expand(num, -1) if is_shared else rows.reshape(num, rows.shape[-1] if num else 1)


def _filled(denoiser: Denoiser, prompt: Prompt | None, length: int | None) -> list[int]:
    """Return the ids of a prompt, followed by masks up to the length."""
    ids = prompt_ids(denoiser, prompt)
    begin, end = _around(denoiser, ids)
    count = len(begin) + len(ids) + len(end)
    has_holes = denoiser.mask_id in ids
    if prompt is not None:
        _check_prompt(denoiser, ids, has_holes, length)
    # A prompt with holes sets the length. A prompt without holes is continued to the model's length.
    whole = _check_length(denoiser, length or (count if has_holes else denoiser.max_length), length)
    if count > whole:
        around = " with [CLS] and [SEP]" if begin or end else ""
        raise ArcmaskError(f"the prompt has {count} tokens{around}, but a sample has {whole} positions")
    return [*begin, *ids, *[denoiser.mask_id] * (whole - count), *end]


def _check_prompt(denoiser: Any, ids: list[int], has_holes: bool, length: int | None) -> None:
    """Raise for a prompt that has nothing to fill in, or that has symbols which are no text."""
    tokenizer, enclosing = getattr(denoiser, "tokenizer", None), getattr(denoiser, "enclosing", None)
    if enclosing is not None and not has_holes and ids[-1:] == [enclosing[1]]:
        raise ArcmaskError("the prompt ends with [SEP] and has no [MASK], so there is nothing to fill in")
    if tokenizer is None or tokenizer.symbols is None:
        return
    # Each id is one symbol: a sequence with a fixed beginning and end, of which only holes are open.
    if ids and not has_holes and length is None:
        raise ArcmaskError("the prompt has no [MASK], so there is nothing to fill in; write one for each symbol")
    begin, end = _around(denoiser, ids)
    inner = ids if enclosing is None else ids[1 - len(begin) : len(ids) - 1 + len(end)]
    special = {*tokenizer.special_ids} - {denoiser.mask_id}
    if wrong := [token for token in inner if token in special]:
        raise ArcmaskError(f"the prompt has {tokenizer.decode(wrong[:1])}, which is no symbol of a sequence")


def _stacked(denoiser: Denoiser, rows: Sequence[list[int]]) -> Rows:
    """Return rows of ids as a tensor (N, L), or padded if their lengths differ."""
    if len(set(map(len, rows))) > 1:
        return PaddedRows.of(rows, pad_id=pad_id_of(denoiser))
    return torch.tensor(rows, dtype=torch.long)


def _check_length(denoiser: Denoiser, length: int | None, given: int | None) -> int:
    """Return the length of a sample, checked; `given` is the one that the user gave."""
    if given is not None and given < 1:
        raise ArcmaskError(f"the length is {given}, but must be 1 or more")
    if length is None:
        raise ArcmaskError("the model has no maximum length; give a length")
    if denoiser.max_length is not None and length > denoiser.max_length:
        raise ArcmaskError(f"the length is {length}, but the model takes at most {denoiser.max_length} positions")
    return length


def _around(denoiser: Any, prompt: list[int]) -> tuple[list[int], list[int]]:
    """Return what a row needs before and after it: [CLS] and [SEP], where the prompt does not have them."""
    enclosing = getattr(denoiser, "enclosing", None)
    if enclosing is None:
        return [], []
    begin, end = enclosing
    return [] if prompt[:1] == [begin] else [begin], [] if prompt[-1:] == [end] else [end]


def _as_list(prompt: Any) -> tuple[list[Any], bool]:
    """Return the prompts as a list, and whether one prompt is shared by all samples."""
    if prompt is None or isinstance(prompt, str):
        return [prompt], True
    prompts = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    if not isinstance(prompts, Sequence):
        raise ArcmaskError(f"prompt is {prompt!r}, but must be a text, the ids of one, or a list of either")
    prompts = list(prompts)
    is_one = not prompts or isinstance(prompts[0], (int, np.integer))
    return ([prompts], True) if is_one else (prompts, False)


class Prompts:
    """The prompts of a file, in the order of its lines. Sample i takes prompt i modulo their number.

    A line has a text, and a .jsonl line may have `tokens`, which are then used instead. A prompt with holes sets the
    length of its samples; any other is continued to the length of the settings.
    """

    def __init__(self, source: str) -> None:
        found = read_samples(source, what="prompts")
        self.source, self.texts = source, found.texts
        self._prompts: Sequence[Prompt] = found.token_lists or found.texts
        for number, prompt in enumerate(self._prompts, 1):
            if not len(prompt):
                raise ArcmaskError(f"prompt {number} of {source} is empty; give its symbols, and [MASK] for each hole")

    def text(self, index: int) -> str:
        """Return the prompt of a sample, as the file has it."""
        return self.texts[index % len(self.texts)]

    def starts(self, denoiser: Denoiser, length: int | None, num: int) -> Rows:
        """Return the prompt of each sample with masks, as `start_tokens` does. An error names the prompt."""
        rows = []
        for number, prompt in enumerate(self._prompts, 1):
            try:
                has_holes = denoiser.mask_id in prompt_ids(denoiser, prompt)
                rows.append(_filled(denoiser, prompt, None if has_holes else length))
            except ArcmaskError as error:
                raise ArcmaskError(f"prompt {number} of {self.source}: {error}") from error
        return _stacked(denoiser, [rows[index % len(rows)] for index in range(num)])


def open_prompts(config: SampleConfig) -> Prompts | None:
    """Read the file of prompts that the settings name, if they name one."""
    if config.prompts is None:
        return None
    prompts = Prompts(config.prompts)
    if len(prompts.texts) > config.num:
        hint = FASTA if prompts.texts[0].startswith(">") else ""
        raise ArcmaskError(
            f"{config.prompts} has {len(prompts.texts)} prompts, but the number of samples is {config.num}; give one "
            f"or more for each prompt{hint}"
        )
    return prompts


def prompt_ids(denoiser: Any, prompt: Prompt | None) -> list[int]:
    """Return the ids of a prompt; holes have the mask's id."""
    if prompt is None:
        return []
    ids = _encode(denoiser, prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
    size = denoiser.table.shape[0]
    outside = [token for token in ids if not 0 <= token < size]
    if outside:
        raise ArcmaskError(f"the prompt has the id {outside[0]}, but ids run from 0 to {size - 1}")
    return ids


def _encode(denoiser: Any, prompt: str) -> list[int]:
    tokenizer = getattr(denoiser, "tokenizer", None)
    if tokenizer is None:
        raise ArcmaskError("the model has no tokenizer; give the prompt as ids")
    pieces = re.split("|".join(map(re.escape, {HOLE, tokenizer.mask_token})), prompt)
    if tokenizer.symbols is not None:  # the whole prompt, so that the position is that in the sequence
        reader, advice = f"the tokenizer {tokenizer.name}", f"write {HOLE} for a symbol to fill in"
        check_symbols(_SHOWN_HOLE.join(pieces), tokenizer.symbols, reader, hole=_SHOWN_HOLE, advice=advice)
    if tokenizer.mask_takes_space:
        pieces = [*(piece.rstrip(" ") for piece in pieces[:-1]), pieces[-1]]
    first, *others = [tokenizer.encode(piece) if piece else [] for piece in pieces]
    return [*first, *(token for piece in others for token in (denoiser.mask_id, *piece))]


def pad_id_of(denoiser: Any) -> int:
    """Return the id behind the end of a sample: the tokenizer's, or any but the mask's."""
    tokenizer = getattr(denoiser, "tokenizer", None)
    return int(denoiser.mask_id == 0) if tokenizer is None else tokenizer.pad_id
