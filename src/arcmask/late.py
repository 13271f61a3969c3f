"""Packages whose attributes load when they are first used, so that settings and help texts wait for no torch."""

import importlib
from collections.abc import Mapping
from typing import Any


def attribute(package: str, homes: Mapping[str, str], name: str) -> Any:
    """What `package` offers as `name`, from the module of the package that is its home."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
