"""Settings of a command as keywords of a Python function: the same names, defaults and checks."""

import os
import types
from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from arcmask.errors import ArcmaskError, did_you_mean, unknown_name
from arcmask.parsing import build_settings, settings_of

P = ParamSpec("P")
R = TypeVar("R")


def takes_settings(kind: type, *leave_out: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function with `**settings` the settings of a dataclass as keywords, which `help` then lists.

    A keyword that is none of them raises. Settings without a default are left out, and those that are named here.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = [p for p in signature(function).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        taken = {parameter.name for parameter in own} | set(leave_out)
        settings = [
            Parameter(setting.name, Parameter.KEYWORD_ONLY, default=setting.default, annotation=setting.type)
            for _, setting in settings_of(kind)
            if setting.name not in taken and setting.default is not MISSING
        ]
        names = [parameter.name for parameter in (*own, *settings)]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in names:
                    where = f"arcmask.{function.__name__}"
                    question = did_you_mean(name, names)
                    raise ArcmaskError(f"{where} has no setting {name!r};{question} help({where}) lists them")
            return function(*args, **kwargs)

        annotated = cast(Any, call)
        annotated.__signature__ = signature(function).replace(parameters=[*own, *settings])
        return call

    return decorate


def build_from_keywords(kind: type, **values: Any) -> Any:
    """Build a dataclass of settings from values, after a check of their types."""
    settings = {setting.name: setting for _, setting in settings_of(kind)}
    return build_settings(kind, {name: _checked(name, value, settings[name].type) for name, value in values.items()})


def _checked(name: str, value: Any, kind: Any) -> Any:
    """Return a value as plain data; raise if it is not of the type that a setting has."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif getattr(value, "ndim", None) == 0:  # a number of numpy or torch
        value = value.item()
    elif isinstance(value, list):
        value = tuple(value)
    if _is_a(value, kind):
        return value
    options = [option for option in _options(kind) if option is not types.NoneType]
    if isinstance(value, str) and all(get_origin(option) is Literal for option in options):
        raise unknown_name(name, value, [choice for option in options for choice in get_args(option)])
    text = repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}"
    raise ArcmaskError(f"{name} is {text}, but must be {' or '.join(map(_words, options))}")


def _options(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union; any other type alone."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _is_a(value: Any, kind: Any) -> bool:
    if len(_options(kind)) > 1:
        return any(_is_a(value, option) for option in _options(kind))
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        items = get_args(kind)
        items = items[:1] * len(value) if isinstance(value, tuple) and items[-1] is ... else items
        return isinstance(value, tuple) and len(value) == len(items) and all(map(_is_a, value, items))
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        items = get_args(kind)
        count = "" if items[-1] is ... else f"{len(items)} "
        return f"a list of {count}{items[0].__name__}"
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"
