"""Short programs to read and run: `python -m examples.NAME`."""
