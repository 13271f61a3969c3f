"""The registry of operators: what an operator is, and how one is found by name, by file or as a function.

An operator maps the mask's embedding, the candidates' embeddings, their probabilities and a weight to the embedding of
a masked position. A file in `feedback/operators/` with a function under `@operator(...)` is found by itself; the
invariants, benchmarks, recipes, reports, figures and the explorer all read `OPERATORS`.
"""

import hashlib
import importlib.util
import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from arcmask.errors import ArcmaskError, unknown_name

Function = Callable[..., Tensor]  # (D,), (M, K, D), (M, K), (M,), steps -> (M, D)
FunctionWithAngle = Callable[..., tuple[Tensor, Tensor]]  # the same -> (M, D) and (M,)
_COLOURS = ("#c26a9a", "#b5a52a", "#a0522d", "#4b4e8f")  # for operators that name none


@dataclass(frozen=True, eq=False)
class Operator:
    """A feedback operator and everything that is said about it. Call it like a function.

    Shapes: mask (D,), candidates (M, K, D), probs (M, K), weight (M,) -> (M, D), in the dtype of `mask`. The result is
    computed in float32 or better, without autocast. `steps` is the number of Karcher steps.

    >>> import torch
    >>> from arcmask.feedback import OPERATORS
    >>> mask, candidates = torch.tensor([1.0, 0.0]), torch.tensor([[[0.0, 1.0]]])
    >>> OPERATORS["linear"](mask, candidates, torch.ones(1, 1), torch.tensor([0.5]))
    tensor([[0.5000, 0.5000]])
    """

    name: str
    function: Function
    label: str
    colour: str
    keeps_norm: bool  # whether the result has the mask's norm
    uses_steps: bool  # whether the number of Karcher steps matters
    with_angle: FunctionWithAngle | None = None  # also returns the angle between mask and Fréchet mean
    missing_sha256: str | None = None  # of an operator that a checkpoint names and the user has not passed

    @property
    def about(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or self.label).partition("\n")[0]

    @property
    def is_ours(self) -> bool:
        """Whether the operator is part of this package."""
        return self.missing_sha256 is None and self.function.__module__.startswith("arcmask.")

    @property
    def sha256(self) -> str:
        """A hash of the function's source code."""
        if self.missing_sha256 is not None:
            return self.missing_sha256
        try:
            source = inspect.getsource(self.function).encode()
        except (OSError, TypeError):  # typed at a prompt
            source = getattr(getattr(self.function, "__code__", None), "co_code", b"")
        return hashlib.sha256(source).hexdigest()

    def require(self) -> None:
        """Raise if this only stands for an operator that a checkpoint names."""
        if self.missing_sha256 is not None:
            self.function()

    def __call__(self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3) -> Tensor:
        """Return the embeddings (M, D)."""
        return self._run(self.function, mask, candidates, probs, weight, steps)

    def blend(
        self, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int = 3
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (M, D), and the angle (M,) to the Fréchet mean if the operator computes it anyway."""
        if self.with_angle is None:
            return self(mask, candidates, probs, weight, steps), None
        return self._run(self.with_angle, mask, candidates, probs, weight, steps)

    def _run(self, function: Any, mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int) -> Any:
        _check_shapes(mask, candidates, probs, weight, steps)
        dtype = torch.promote_types(mask.dtype, torch.float32)
        extra = {"steps": steps} if self.uses_steps else {}
        # Autocast would compute the inner products in bfloat16 whatever the dtype of their inputs.
        with torch.autocast(mask.device.type, enabled=False):
            result = function(mask.to(dtype), candidates.to(dtype), probs.to(dtype), weight.to(dtype), **extra)
        embeddings, *angle = result if isinstance(result, tuple) else (result,)
        shape = (len(candidates), len(mask))
        if not isinstance(embeddings, Tensor) or embeddings.shape != shape:
            kind = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
            raise ArcmaskError(f"the operator {self.name} must return embeddings of shape {shape}, but returned {kind}")
        embeddings = embeddings.to(mask.dtype)
        return (embeddings, *angle) if angle else embeddings


OPERATORS: dict[str, Operator] = {}


def default_colour(name: str) -> str:
    """Return the colour of an operator that names none; it depends on the name alone."""
    return _COLOURS[zlib.crc32(name.encode()) % len(_COLOURS)]


def operator(
    name: str,
    *,
    label: str | None = None,
    colour: str | None = None,
    keeps_norm: bool = False,
    uses_steps: bool | None = None,
    with_angle: FunctionWithAngle | None = None,
) -> Callable[[Function], Operator]:
    """Register a function as an operator, with everything that is said about it; refuse a name that is taken.

    `uses_steps` defaults to whether the function has a parameter `steps`.

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
            keeps_norm=keeps_norm,
            uses_steps=has_steps if uses_steps is None else uses_steps,
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
    """
    if isinstance(source, Operator):
        return source
    if not isinstance(source, str):
        return _register_function(source)
    if ".py:" in source:
        return _from_file(source)
    if source not in OPERATORS:
        raise unknown_name("operator", source, [*OPERATORS, "FILE.py:FUNCTION"])
    return OPERATORS[source]


def missing_operator(name: str, sha256: str) -> Operator:
    """Return a stand-in for an operator from outside the package, which a checkpoint names but does not contain."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ArcmaskError(
            f"the checkpoint was trained with the operator {name!r}, which is not part of arcmask; pass its function "
            "again as FILE.py:FUNCTION"
        )

    return Operator(name, refuse, name, _COLOURS[0], keeps_norm=False, uses_steps=False, missing_sha256=sha256)


def _register_function(function: Function) -> Operator:
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function):
        raise ArcmaskError(f"an operator is a name, FILE.py:FUNCTION or a function, but got {function!r}")
    existing = OPERATORS.get(name)
    if existing is not None and not existing.is_ours:  # defined anew, as in a notebook
        if existing.function is function:
            return existing
        del OPERATORS[name]
    return operator(name)(function)


_modules: dict[Path, Any] = {}  # files that were imported, by path


def _from_file(source: str) -> Operator:
    """Import a file that the user named, and return the operator that its function is."""
    file, _, name = source.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ArcmaskError(f"there is no file {file} to take the operator {name} from")
    if path not in _modules:
        spec = importlib.util.spec_from_file_location(f"operators_of_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ArcmaskError:
            raise
        except Exception as error:
            raise ArcmaskError(f"{file} cannot be imported ({type(error).__name__}: {error})") from error
        _modules[path] = module
    function = getattr(_modules[path], name, None)
    if not callable(function):
        names = [key for key, value in vars(_modules[path]).items() if callable(value) and not key.startswith("_")]
        raise ArcmaskError(f"{file} has no function {name!r}; it has: {', '.join(names) or 'none'}")
    return find_operator(function)


def _check_shapes(mask: Tensor, candidates: Tensor, probs: Tensor, weight: Tensor, steps: int) -> None:
    m, k, d = candidates.shape if candidates.ndim == 3 else (-1, -1, -1)
    if (mask.shape, probs.shape, weight.shape) != ((d,), (m, k), (m,)) or k < 1:
        raise ArcmaskError(
            "an operator takes mask (D,), candidates (M, K, D) with K of at least 1, probs (M, K) and weight (M,), "
            f"but got {tuple(mask.shape)}, {tuple(candidates.shape)}, {tuple(probs.shape)} and {tuple(weight.shape)}"
        )
    if steps < 0:
        raise ArcmaskError(f"the number of Karcher steps is {steps}, but must be 0 or more")
