"""The structure of a report, before it is rendered: chapters, sections and blocks."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from arcmask.files import json_bytes
from arcmask.report.figure import Drawing
from arcmask.report.table import Table

_LONGEST_TEXT = 2400  # characters


@dataclass(frozen=True)
class Picture:
    """A figure that another command drew: the bytes of its PNG file, and its data."""

    name: str
    title: str
    caption: str
    png: bytes
    data: dict[str, Any]

    @property
    def wide(self) -> bool:
        """Whether the picture is more than twice as wide as high, by the size in its header."""
        width, height = struct.unpack(">II", self.png[16:24])
        return bool(width > 2 * height)

    def save(self, path: Path) -> None:
        """Write the PNG file, and a JSON file of its data."""
        path.write_bytes(self.png)
        path.with_suffix(".json").write_bytes(json_bytes(self.data))


@dataclass(frozen=True)
class Panel:
    """The samples of one budget and seed: for each index one text per arm, None if the arm has none."""

    budget: int
    seed: int
    rows: list[tuple[int, list[str | None]]]


@dataclass(frozen=True)
class Block:
    """A part of a section. Its kind says which of the fields are used."""

    kind: Literal["text", "facts", "lead", "notice", "table", "figures", "samples", "code"]
    text: str = ""
    items: list[Any] = field(default_factory=list)
    table: Table | None = None


@dataclass(frozen=True)
class Section:
    """A part of a chapter, with an entry in the table of contents."""

    name: str
    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Chapter:
    """The report of one run, or the comparison of several."""

    name: str
    title: str
    subtitle: str
    sections: list[Section]

    def tables(self) -> list[Table]:
        """List the tables in reading order."""
        return [block.table for block in self._blocks() if block.table is not None]

    def figures(self) -> list[Drawing | Picture]:
        """List the figures in reading order."""
        return [item for block in self._blocks() if block.kind == "figures" for item in block.items]

    def _blocks(self) -> list[Block]:
        return [block for section in self.sections for block in section.blocks]


def table_blocks(*tables: Table | None) -> list[Block]:
    """Return a block for each table that is not None."""
    return [Block("table", table=table) for table in tables if table is not None]


def figure_block(drawings: list[Any]) -> list[Block]:
    """Return a block with the figures side by side, or no block without figures."""
    return [Block("figures", items=drawings)] if drawings else []


def settings_block(settings: Mapping[str, Any], title: str) -> Block:
    """Return settings as YAML, folded under a title."""
    return Block("code", yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True), items=[title])


def sample_text(record: Mapping[str, Any]) -> str:
    """Return the text of a sample, or its tokens if it has none; a long one is cut."""
    text = record.get("text")
    if text is None:
        text = " ".join(str(token) for token in record.get("tokens", []))
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " \u2026"
