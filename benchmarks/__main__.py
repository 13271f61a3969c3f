"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all of them."""

import importlib
import sys

NAMES = ("operators", "denoiser", "sampling", "training", "released", "gain", "evaluation")


def main(names: list[str]) -> None:
    """Run in the order given."""
    for name in names:
        if name not in NAMES:
            sys.exit(f"unknown benchmark {name!r}; choose from: {', '.join(NAMES)}")
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
