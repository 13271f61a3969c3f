"""One module per command, with `run(config)` and, where the command costs something, `dry_run(config)`.

This is the only layer that prints results. `cli.py` parses the words and calls these functions.
"""
