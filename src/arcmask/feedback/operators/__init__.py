"""The operators, one per file: the function and everything that is said about it.

A file's name is its operator's name with `_` for `-`. At weight 0 every operator returns the mask's embedding, bit for
bit, with the true gradient.
"""
