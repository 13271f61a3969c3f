"""The operators, one per file: the function with its label, colour and properties.

The name of a file is the name of its operator with `_` in place of `-`. At weight 0 every operator returns exactly the
mask's embedding, with the true gradient.
"""
