"""The kinds of values that settings have: a check against the declared type, for settings from YAML or Python."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from arcmask.errors import ArcmaskError

_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}


def typed(value: Any, kind: Any, where: str) -> Any:
    """Return the value of a setting in the type that it is declared with; a list is a tuple."""
    # `int | Literal[...]` is a Union of typing, not a UnionType.
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in options:
        items = get_args(option)
        if get_origin(option) is Literal and value in items:
            return value
        if get_origin(option) is tuple and isinstance(value, list):
            kinds = items[:1] * len(value) if items[1:] == (...,) else items
            if len(kinds) == len(value):
                return tuple(typed(item, one, where) for item, one in zip(value, kinds, strict=True))
        if option is float and type(value) in (int, float, str):
            try:
                return float(value)  # also of text: YAML reads 3e-4, without a point, as text
            except ValueError:
                continue
        if isinstance(option, type) and type(value) is option:
            return value
        if get_origin(option) is dict and isinstance(value, dict):
            return value  # the arms, which are built already
    text = repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}"
    raise ArcmaskError(f"{where} is {text}, but must be {' or '.join(map(_describe, options))}")


def _describe(kind: Any) -> str:
    items = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(map(str, items))
    if get_origin(kind) is tuple:
        return f"a list of {'numbers' if items[0] in (int, float) else 'words'}"
    return _KINDS.get(kind, "settings by name")
