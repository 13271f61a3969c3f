"""The architecture, read off the imports: a module imports only from layers below its own."""

import ast
from pathlib import Path

import arcmask

ROOT = Path(arcmask.__file__).parent
LAYERS = [
    {"errors"},
    {"files", "progress", "settings"},
    {"run_folder"},
    {"sphere", "schedule", "candidates"},
    {"feedback"},
    {"model", "data", "figures"},
    {"objective", "sampling", "checkpoint"},
    {"training", "evaluation"},
    {"diagnostics"},
    {"experiment", "report"},
    {"recipes"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """The arcmask modules that a file imports, anywhere in it, as dotted names below arcmask."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("arcmask.") for name in found if name.startswith("arcmask.")}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(path): path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"}


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in FILES} <= set(LEVEL)


def test_a_module_imports_only_from_lower_layers_or_its_own_folder():
    wrong = []
    for name, path in FILES.items():
        part = name.split(".")[0]
        for other in imports(path):
            other_part = other.split(".")[0]
            if other_part in LEVEL and other_part != part and LEVEL[other_part] >= LEVEL[part]:
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_files_of_one_folder_import_each_other_one_way():
    edges = {name: {o for o in imports(path) if o in FILES and o != name} for name, path in FILES.items()}

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        if start == goal:
            return True
        seen.add(start)
        return any(reaches(n, goal, seen) for n in edges[start] - seen)

    circles = [f"{a} <-> {b}" for a in edges for b in edges[a] if reaches(b, a, set())]
    assert circles == []
