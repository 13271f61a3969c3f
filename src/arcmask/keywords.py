"""Settings of a command as keywords of a Python function: the same names, defaults and checks."""

import os
from collections.abc import Callable
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar, cast

from arcmask.errors import ArcmaskError, did_you_mean
from arcmask.parsing import build_settings, refuse_unused, settings_of
from arcmask.settings.kinds import typed

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
    """Build a dataclass of settings from values, after a check of their types and of what has no effect."""
    settings = {setting.name: setting for _, setting in settings_of(kind)}
    checked = {name: typed(_plain(value), settings[name].type, name) for name, value in values.items()}
    config = build_settings(kind, checked)
    refuse_unused(config, [name for name, value in checked.items() if value != settings[name].default])
    return config


def _plain(value: Any) -> Any:
    """Return a path, a number of numpy or torch, or a tuple as plain data."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return list(value) if isinstance(value, tuple) else value
