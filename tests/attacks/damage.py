"""Seeded ways to damage a file: cut it, flip or garble its bytes, change its JSON, or put something else there.

A damage is a function of a path and a `random.Random`. `damages_of` names those that make sense for a file.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[Path, random.Random], object]
NESTED = 200_000
# Values that take the place of one value somewhere in a JSON or YAML file.
OTHER_VALUES: dict[str, Any] = {
    "a huge number": 10**400,
    "a large number": 10**15,
    "a negative number": -7,
    "a fraction": 0.37,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "a string": "\u2028[/b]$\\foo{\ud800",
    "a list": [[]],
    "an object": {"a": {}},
    "null": None,
    "true": True,
}


def _cut(share: Callable[[int], int]) -> Damage:
    return lambda path, _: path.write_bytes(path.read_bytes()[: share(path.stat().st_size)])


def _flip(path: Path, draw: random.Random) -> None:
    """Flip one bit in up to eight bytes, half of them near the beginning, where headers are."""
    content = bytearray(path.read_bytes())
    for number in range(draw.randint(1, 8) if content else 0):
        end = min(len(content), 64) if number % 2 else len(content)
        content[draw.randrange(end)] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _garble(path: Path, draw: random.Random) -> None:
    path.write_bytes(draw.randbytes(max(16, path.stat().st_size)))


def _overwrite(path: Path, draw: random.Random) -> None:
    """Put random bytes over a random part; the size stays."""
    content = bytearray(path.read_bytes())
    if content:
        start = draw.randrange(len(content))
        length = min(len(content) - start, 200)
        content[start : start + length] = draw.randbytes(length)
    path.write_bytes(content)


def _instead(content: bytes) -> Damage:
    return lambda path, _: path.write_bytes(content)


def _remove(path: Path, _: random.Random) -> None:
    path.unlink()


def _folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _dangle(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _edited(change: Callable[[Any, random.Random], None]) -> Damage:
    """Return the damage that changes one value: of the file, or of one line of a .jsonl file."""

    def damage(path: Path, draw: random.Random) -> None:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        number = draw.randrange(len(lines))
        value = yaml.safe_load(lines[number]) if path.suffix == ".yaml" else json.loads(lines[number])
        change(value, draw)
        # JSON is YAML too, but for NaN and infinity, which YAML reads as strings.
        lines[number] = json.dumps(value)
        path.write_text("\n".join(lines) + "\n", errors="surrogatepass")

    return damage


def _somewhere(value: Any, draw: random.Random) -> tuple[Any, Any]:
    """Choose a container inside a value, and one of its keys or indices; the outer ones are more likely."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw.choice(keys)
        if not isinstance(value[key], dict | list) or not value[key] or draw.random() < 0.4:
            return value, key
        value = value[key]


def _without_a_key(value: Any, draw: random.Random) -> None:
    container, key = _somewhere(value, draw)
    del container[key]


def _with(other: Any) -> Damage:
    def change(value: Any, draw: random.Random) -> None:
        container, key = _somewhere(value, draw)
        container[key] = other

    return _edited(change)


DAMAGES: dict[str, Damage] = {
    "empty": _cut(lambda _: 0),
    "half": _cut(lambda size: size // 2),
    "last byte lost": _cut(lambda size: size - 1),
    "bits flipped": _flip,
    "garbled": _garble,
    "partly garbled": _overwrite,
    "zeros": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "removed": _remove,
    "a folder": _folder,
    "a dangling link": _dangle,
}
STRUCTURED: dict[str, Damage] = {
    "nested lists": _instead(b"[" * NESTED),
    "closed nested lists": _instead(b"[" * NESTED + b"]" * NESTED),
    "nested objects": _instead(b'{"a":' * NESTED),
    "is a list": _instead(b"[1, 2]\n"),
    "is a string": _instead(b'"text"\n'),
    "is a number": _instead(b"17\n"),
    "is null": _instead(b"null\n"),
    "is an empty object": _instead(b"{}\n"),
    "a key removed": _edited(_without_a_key),
    **{f"{name} in it": _with(value) for name, value in OTHER_VALUES.items()},
}


def damages_of(path: Path) -> list[str]:
    """Return the names of the damages for a file."""
    return [*DAMAGES, *(STRUCTURED if path.suffix in (".json", ".jsonl", ".yaml") else ())]


def has_draws(name: str) -> bool:
    """Return whether a damage depends on its seed."""
    return "in it" in name or name in ("a key removed", "bits flipped", "garbled", "partly garbled")


def damage(path: Path, name: str, seed: int) -> None:
    """Damage a file."""
    (DAMAGES | STRUCTURED)[name](path, random.Random(f"{path.name} {name} {seed}"))


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder."""
    (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
