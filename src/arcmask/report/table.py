"""A table as a record, and its forms: Markdown, LaTeX (booktabs) and JSON. The page draws it as HTML by itself."""

from dataclasses import dataclass, field
from typing import Any

from arcmask.files import json_bytes
from arcmask.report.wording import latex, markdown


@dataclass(frozen=True)
class Entry:
    """What stands in a cell: its text, an interval or p-value in the lines beneath it, and the paper's value."""

    text: str
    under: str = ""
    paper: str = ""
    mark: str = ""  # a reading of it, by which the page colours it
    number: bool = True

    @property
    def line(self) -> str:
        """All of it in one line."""
        parts = (self.text, self.under.replace("\n", ", "), self.paper and f"(paper: {self.paper})")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Row:
    """Entries with the numbers behind them; or a heading over the rows that follow."""

    entries: list[Entry]
    data: dict[str, Any] = field(default_factory=dict)
    heading: str = ""
    rule: bool = False  # a little space before it: another arm begins


@dataclass(frozen=True)
class Head:
    """A column's heading, and what is said beneath it."""

    text: str
    note: str = ""
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table with one sentence on how to read it."""

    name: str
    title: str
    caption: str
    heads: list[Head]
    rows: list[Row]
    groups: list[tuple[str, int]] = field(default_factory=list)  # headings over several columns: text, columns
    notes: list[str] = field(default_factory=list)
    folded: bool = False  # long and raw: the page shows it when asked

    def markdown(self) -> str:
        """As Markdown; a heading over several columns is put before each of theirs."""
        above = [text for text, span in self.groups for _ in range(span)] or [""] * len(self.heads)
        heads = [
            " ".join(part for part in (over, head.text, head.note and f"({head.note})") if part)
            for over, head in zip(above, self.heads, strict=True)
        ]
        lines = [
            _markdown_row(heads),
            "|" + "|".join("---:" if head.number else ":---" for head in self.heads) + "|",
        ]
        for row in self.rows:
            if row.heading:
                lines.append(f"| **{markdown(row.heading)}** |" + " |" * (len(self.heads) - 1))
            else:
                lines.append(_markdown_row([entry.line for entry in row.entries]))
        text = [f"**{self.title}.** {self.caption}", "", *lines]
        return "\n".join(text + [f"\n{note}" for note in self.notes]) + "\n"

    def latex(self) -> str:
        """As a table environment; needs booktabs."""
        columns = "".join("r" if head.number else "l" for head in self.heads)
        lines = [r"\begin{table}[t]", r"\centering", r"\small", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        if self.groups:
            lines += _latex_groups(self.groups)
        heads = [
            rf"\textbf{{{latex(head.text)}}}" + (rf" {{\scriptsize {latex(head.note)}}}" if head.note else "")
            for head in self.heads
        ]
        lines += [" & ".join(heads) + r" \\", r"\midrule"]
        for row in self.rows:
            if row.rule:
                lines.append(r"\addlinespace")
            if row.heading:
                lines.append(rf"\multicolumn{{{len(self.heads)}}}{{l}}{{\emph{{{latex(row.heading)}}}}} \\")
            else:
                lines.append(" & ".join(latex(entry.line) for entry in row.entries) + r" \\")
        caption = " ".join([f"{self.title}. {self.caption}", *self.notes])
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{latex(caption)}}}", rf"\label{{tab:{self.name}}}"]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def json(self) -> bytes:
        """The numbers behind the rows, unrounded."""
        rows = [row.data for row in self.rows if not row.heading]
        told = {"name": self.name, "title": self.title, "caption": self.caption, "notes": self.notes}
        return json_bytes(told | {"rows": rows})


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(markdown(cell) for cell in cells) + " |"


def _latex_groups(groups: list[tuple[str, int]]) -> list[str]:
    cells, rules, column = [], [], 1
    for text, span in groups:
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{latex(text)}}}")
        if text:
            rules.append(rf"\cmidrule(lr){{{column}-{column + span - 1}}}")
        column += span
    return [" & ".join(cells) + r" \\", " ".join(rules)]
