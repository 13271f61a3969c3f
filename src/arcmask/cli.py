"""The command line: parse, look names up, call. No maths, and no torch until a command needs it."""

import sys
from collections.abc import Sequence

from jsonargparse import ArgumentParser

import arcmask


def build_parser() -> ArgumentParser:
    """The whole command line."""
    return ArgumentParser(
        prog="arcmask",
        description="Predictive feedback for masked diffusion language models, along the sphere of their embeddings.",
        version=arcmask.__version__,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; without one, say what there is."""
    parser = build_parser()
    parser.parse_args(sys.argv[1:] if arguments is None else list(arguments))
    parser.print_help()
