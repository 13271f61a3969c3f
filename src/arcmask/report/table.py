"""Tables as records, and their Markdown, LaTeX (booktabs) and JSON forms. The page renders the records as HTML."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from arcmask.files import json_bytes
from arcmask.report.wording import latex, markdown


@dataclass(frozen=True)
class Entry:
    """A cell: its text, smaller lines below it, and the paper's value. `mark` is a reading that the page colours."""

    text: str
    under: str = ""
    paper: str = ""
    mark: str = ""
    number: bool = True

    @property
    def line(self) -> str:
        """The whole cell in one line."""
        return _joined(self.text, self.under.replace("\n", ", "), self.paper and f"(paper: {self.paper})")


def words(text: str) -> Entry:
    """Return a cell of text, which is aligned to the left."""
    return Entry(text, number=False)


@dataclass(frozen=True)
class Row:
    """Entries and the numbers behind them, or a heading for the rows that follow. `rule` puts space before it."""

    entries: list[Entry]
    data: dict[str, Any] = field(default_factory=dict)
    heading: str = ""
    rule: bool = False


@dataclass(frozen=True)
class Head:
    """The heading of a column, and a note below it."""

    text: str
    note: str = ""
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table with a caption. `groups` are headings over several columns; the page folds a `folded` table."""

    name: str
    title: str
    caption: str
    heads: list[Head]
    rows: list[Row]
    groups: list[tuple[str, int]] = field(default_factory=list)  # text, number of columns
    notes: list[str] = field(default_factory=list)
    folded: bool = False

    def markdown(self) -> str:
        """Return the table as Markdown, with each group's heading repeated in its columns."""
        above = [text for text, span in self.groups for _ in range(span)] or [""] * len(self.heads)
        heads = [
            _joined(group, head.text, head.note and f"({head.note})")
            for group, head in zip(above, self.heads, strict=True)
        ]
        lines = [_markdown_row(heads), f"|{'|'.join('---:' if head.number else ':---' for head in self.heads)}|"]
        for row in self.rows:
            if row.heading:
                lines.append(f"| **{markdown(row.heading)}** |" + " |" * (len(self.heads) - 1))
            else:
                lines.append(_markdown_row(entry.line for entry in row.entries))
        text = [f"**{self.title}.** {self.caption}", "", *lines]
        return "\n".join(text + [f"\n{note}" for note in self.notes]) + "\n"

    def latex(self) -> str:
        """Return the table as a LaTeX table environment, which needs booktabs."""
        columns = "".join("r" if head.number else "l" for head in self.heads)
        lines = [r"\begin{table}[t]", r"\centering", r"\small", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        lines += _latex_groups(self.groups)
        heads = [
            rf"\textbf{{{latex(head.text)}}}" + (rf" {{\scriptsize {latex(head.note)}}}" if head.note else "")
            for head in self.heads
        ]
        lines += [" & ".join(heads) + r" \\", r"\midrule"]
        for row in self.rows:
            lines += [r"\addlinespace"] if row.rule else []
            if row.heading:
                lines.append(rf"\multicolumn{{{len(self.heads)}}}{{l}}{{\emph{{{latex(row.heading)}}}}} \\")
            else:
                lines.append(" & ".join(latex(entry.line) for entry in row.entries) + r" \\")
        caption = " ".join([f"{self.title}. {self.caption}", *self.notes])
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{latex(caption)}}}", rf"\label{{tab:{self.name}}}"]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def json(self) -> bytes:
        """Return the unrounded numbers of the rows as JSON."""
        rows = [row.data for row in self.rows if not row.heading]
        texts = {"name": self.name, "title": self.title, "caption": self.caption, "notes": self.notes}
        return json_bytes(texts | {"rows": rows})


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(markdown(cell) for cell in cells)} |"


def _latex_groups(groups: list[tuple[str, int]]) -> list[str]:
    cells, rules, column = [], [], 1
    for text, span in groups:
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{latex(text)}}}")
        rules += [rf"\cmidrule(lr){{{column}-{column + span - 1}}}"] if text else []
        column += span
    return [" & ".join(cells) + r" \\", " ".join(rules)] if groups else []
