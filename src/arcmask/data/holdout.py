"""Which documents are kept for validation.

Knows numbers of documents, not documents. A rule is a short text: `every:N`, `last:N` or `none`.
"""

from dataclasses import dataclass

from arcmask.errors import ArcmaskError

_CHOICES = "every:N (each N-th document), last:N (the last N documents) or none"


@dataclass(frozen=True)
class Holdout:
    """A rule, `kind` every, last or none, with its number."""

    kind: str
    number: int

    @classmethod
    def parse(cls, rule: str) -> "Holdout":
        kind, _, number = rule.partition(":")
        if rule == "none":
            return cls("none", 0)
        # every:1 would leave nothing to train on.
        least = {"every": 2, "last": 1}.get(kind)
        if least is None or not number.isdecimal() or int(number) < least:
            raise ArcmaskError(f"the holdout is {rule!r}, but must be {_CHOICES}")
        return cls(kind, int(number))

    def holds(self, document: int, total: int | None) -> bool:
        """Whether a document, counted from 0, is held out; `total` documents are needed for `last` alone."""
        if self.kind == "every":
            return document % self.number == self.number - 1
        if self.kind == "last":
            assert total is not None
            return document >= total - self.number
        return False
