"""The registry of operators: what an operator is, and how to find one by name, by file or as a function.

An operator maps the mask's embedding, the candidates' embeddings, their probabilities and a weight to the embedding of
a masked position. Every file in `feedback/operators/` registers one with `@operator(...)`. The invariants, benchmarks,
recipes, reports, figures and the explorer all read `OPERATORS`.

Shapes: M masked positions, K candidates, D width.
"""

import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, unknown_name
from arcmask.files import sha256

Function = Callable[..., Tensor]  # (D,), (M, K, D), (M, K), (M,), steps -> (M, D)
FunctionWithAngle = Callable[..., tuple[Tensor, Tensor]]  # the same inputs -> (M, D) and (M,)
_COLOURS = ("#c26a9a", "#b5a52a", "#a0522d", "#4b4e8f")  # for operators without a colour of their own


@dataclass(frozen=True, eq=False)
class Operator:
    """A feedback operator: its function, and its label, colour and properties. Call it like the function.

    Shapes: mask (D,), candidates (M, K, D), probs (M, K), weight (M,) -> (M, D), in the dtype of `mask`. The result is
    computed in float32 or better, without autocast. `steps` is the number of Karcher steps.

    >>> import torch
    >>> from arcmask.feedback import OPERATORS
    >>> mask, candidates = torch.tensor([1.0, 0.0]), torch.tensor([[[0.0, 1.0]]])
    >>> OPERATORS["linear"](mask, candidates, torch.ones(1, 1), torch.tensor([0.5]))
    tensor([[0.5000, 0.5000]])
    """

    name: str
    function: Function | None  # None if only the name is known, from a checkpoint
    label: str
    colour: str
    sha256: str  # hash of the function's source
    keeps_norm: bool = False  # whether the result has the mask's norm
    uses_steps: bool = False  # whether the result depends on the number of Karcher steps
    mean: str = ""  # which mean of the candidates it moves to, in a few words
    path: str = ""  # and on which path
    with_angle: FunctionWithAngle | None = None  # also returns the angle between the mask and the Fréchet mean

    @property
    def about(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or self.label).partition("\n")[0]

    @property
    def is_ours(self) -> bool:
        """Whether the operator is part of this package."""
        return str(getattr(self.function, "__module__", None)).startswith("arcmask.")

    def require(self) -> Function:
        """Return the function, or raise if a checkpoint names it and the user has not passed it."""
        if self.function is None:
            raise ArcmaskError(
                f"the checkpoint was trained with the operator {self.name!r}, which is not part of arcmask; "
                "pass its function again as FILE.py:FUNCTION"
            )
        return self.function

    def __call__(self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
        """Return the embeddings (M, D)."""
        return self.blend(mask, candidates, probs, weight, steps, angle=False)[0]

    def blend(
        self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int, *, angle: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (M, D), and with `angle` what `with_angle` computes (M,), or None without it."""
        _check_shapes(mask, candidates, probs, weight, steps)
        dtype = torch.promote_types(mask.dtype, torch.float32)
        inputs = [tensor.to(dtype) for tensor in (mask, candidates, probs, weight)]
        options = {"steps": steps} if self.uses_steps else {}
        # Autocast would compute the inner products in bfloat16 whatever the dtype of their inputs.
        with torch.autocast(mask.device.type, enabled=False):
            if angle and self.with_angle is not None:
                embeddings, angles = self.with_angle(*inputs, **options)
            else:
                embeddings, angles = self.require()(*inputs, **options), None
        shape = (len(candidates), len(mask))
        if not isinstance(embeddings, Tensor) or embeddings.shape != shape:
            kind = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
            raise ArcmaskError(f"the operator {self.name} must return embeddings of shape {shape}, but returned {kind}")
        return embeddings.to(mask.dtype), angles


OPERATORS: dict[str, Operator] = {}
"""All operators by name: those of the package, and those that the user registered."""


def default_colour(name: str) -> str:
    """Return the colour of an operator that sets none; it depends on the name alone."""
    return _COLOURS[zlib.crc32(name.encode()) % len(_COLOURS)]


def operator(
    name: str,
    *,
    label: str | None = None,
    colour: str | None = None,
    keeps_norm: bool = False,
    uses_steps: bool | None = None,
    mean: str = "",
    path: str = "",
    with_angle: FunctionWithAngle | None = None,
) -> Callable[[Function], Operator]:
    """Register a function (D,), (M, K, D), (M, K), (M,) -> (M, D) as an operator; refuse a name that is taken.

    `uses_steps` defaults to whether the function has a parameter `steps`. `mean` and `path` say in a few words where it
    moves and how; the report's table of operators shows them. `with_angle` is a second function that
    returns the embeddings and the angle (M,) between the mask and the Fréchet mean. It saves computing the mean twice
    when the angle is logged.

    >>> from arcmask.feedback import OPERATORS, operator
    >>> @operator("halfway", label="half-way", colour="#884400")
    ... def halfway(mask, candidates, probs, weight):
    ...     return mask + weight[:, None] * (candidates[:, 0] - mask) / 2
    >>> OPERATORS.pop("halfway").label
    'half-way'
    """

    def register(function: Function) -> Operator:
        has_steps = "steps" in inspect.signature(function).parameters
        record = Operator(
            name=name,
            function=function,
            label=label or name,
            colour=colour or default_colour(name),
            sha256=_source_hash(function),
            keeps_norm=keeps_norm,
            uses_steps=has_steps if uses_steps is None else uses_steps,
            mean=mean,
            path=path,
            with_angle=with_angle,
        )
        existing = OPERATORS.get(name)
        if existing is not None and (existing.is_ours or existing.sha256 != record.sha256):
            raise ArcmaskError(f"the operator name {name!r} is taken; choose another")
        OPERATORS[name] = record
        return record

    return register


def find_operator(source: "str | Function | Operator") -> Operator:
    """Return the operator of a name, of FILE.py:FUNCTION, or of a function; an unknown name lists the choices.

    A function without `@operator` is registered under its own name.

    >>> from arcmask.feedback import find_operator
    >>> find_operator("linear").label
    'linear (LERP)'
    """
    if isinstance(source, Operator):
        return source
    if not isinstance(source, str):
        return _register_function(source)
    if ".py:" in source:
        return find_operator(function_in_file(source, "operator"))
    if source not in OPERATORS:
        raise ArcmaskError(f"{unknown_name('operator', source, OPERATORS)}, or FILE.py:FUNCTION")
    return OPERATORS[source]


def _source_hash(function: Function) -> str:
    try:
        source = inspect.getsource(function).encode()
    except (OSError, TypeError):  # defined at an interactive prompt
        source = getattr(getattr(function, "__code__", None), "co_code", b"")
    return sha256(source)


def _register_function(function: Function) -> Operator:
    if not callable(function):
        raise ArcmaskError(f"an operator is a name, FILE.py:FUNCTION or a function, but got {function!r}")
    name = getattr(function, "__name__", type(function).__name__)
    existing = OPERATORS.get(name)
    if existing is not None and not existing.is_ours:
        if existing.function is function:
            return existing
        del OPERATORS[name]  # the function was defined again, as in a notebook
    return operator(name)(function)


def function_in_file(source: str, kind: str) -> Callable[..., Any]:
    """Import the file of FILE.py:FUNCTION, which the user named, and return its function, an operator or a plan."""
    file, _, name = source.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ArcmaskError(f"there is no file {file} to take the {kind} {name} from")
    try:
        members = vars(_import_file(path))
    except ArcmaskError:
        raise
    except Exception as error:
        raise ArcmaskError(f"{file} cannot be imported ({type(error).__name__}: {error})") from error
    if not callable(members.get(name)):
        names = [key for key, value in members.items() if callable(value) and not key.startswith("_")]
        raise ArcmaskError(f"{file} has no function {name!r}; it has: {', '.join(names) or 'none'}")
    return members[name]


@cache
def _import_file(path: Path) -> ModuleType:
    module = ModuleType(f"functions_of_{path.stem}")
    module.__file__ = str(path)
    SourceFileLoader(module.__name__, str(path)).exec_module(module)
    return module


def _check_shapes(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int) -> None:
    m, k, d = candidates.shape if candidates.ndim == 3 else (-1, -1, -1)
    if (mask.shape, probs.shape, weight.shape) != ((d,), (m, k), (m,)) or k < 1:
        raise ArcmaskError(
            "an operator takes mask (D,), candidates (M, K, D) with K of at least 1, probs (M, K) and weight (M,), "
            f"but got {tuple(mask.shape)}, {tuple(candidates.shape)}, {tuple(probs.shape)} and {tuple(weight.shape)}"
        )
    if steps < 0:
        raise ArcmaskError(f"the number of Karcher steps is {steps}, but must be 0 or more")
