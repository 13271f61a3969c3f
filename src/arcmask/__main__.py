"""`python -m arcmask`, for launchers that start modules (torchrun)."""

from arcmask.cli import main

if __name__ == "__main__":
    main()
