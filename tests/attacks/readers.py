"""Readers that are no command: they call the library, and report an ArcmaskError as the command line does."""

import sys

from arcmask.errors import ArcmaskError


def read(words: list[str]) -> None:
    """Read all that a prepared folder has."""
    from arcmask.data import open_prepared

    try:
        for split in ("train", "validation"):
            corpus = open_prepared(words[0], split)
            corpus.rows(range(len(corpus)))
            corpus.tokenizer().decode(corpus.rows([0])[0].tolist())
            corpus.frequencies.sum()
    except ArcmaskError as error:
        print(f"arcmask: {error}", file=sys.stderr)
        sys.exit(2)
