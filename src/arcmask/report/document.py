"""What a report consists of, before it is a page: chapters of sections of blocks."""

import struct
from dataclasses import dataclass, field
from typing import Any, Literal

from arcmask.report.figure import Drawing
from arcmask.report.table import Table


@dataclass(frozen=True)
class Picture:
    """A figure that another command drew: its bytes and its data, as they lie in its folder."""

    name: str
    title: str
    caption: str
    png: bytes
    data: dict[str, Any]

    @property
    def wide(self) -> bool:
        """Whether it is made of panels side by side, by the size that its header gives."""
        width, height = struct.unpack(">II", self.png[16:24])
        return bool(width > 2 * height)


@dataclass(frozen=True)
class Block:
    """Something on the page. Which fields it has depends on its kind."""

    kind: Literal["text", "facts", "bullets", "notice", "table", "figures", "samples", "code"]
    text: str = ""
    items: list[Any] = field(default_factory=list)
    table: Table | None = None


@dataclass(frozen=True)
class Section:
    """A part with an entry in the table of contents."""

    name: str
    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Chapter:
    """A run, or the comparison of runs."""

    name: str
    title: str
    subtitle: str
    sections: list[Section]

    def tables(self) -> list[Table]:
        """In order."""
        return [block.table for section in self.sections for block in section.blocks if block.table is not None]

    def figures(self) -> list[Drawing | Picture]:
        """In order."""
        return [
            i for section in self.sections for block in section.blocks if block.kind == "figures" for i in block.items
        ]


def table_blocks(*tables: Table | None) -> list[Block]:
    """Those that there are."""
    return [Block("table", table=table) for table in tables if table is not None]


def figure_block(drawings: list[Any]) -> list[Block]:
    """Figures side by side; nothing if there is none."""
    return [Block("figures", items=drawings)] if drawings else []
