"""The architecture, read off the source: layers of imports, one name per module, who prints, and what is light."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import arcmask

ROOT = Path(arcmask.__file__).parent
LAYERS = [
    {"errors"},
    {"blocks", "files", "progress", "ranks", "settings"},
    {"launch", "run_folder"},
    {"downloads"},
    {"sphere", "schedule", "candidates", "rows"},
    {"feedback"},
    {"data", "figures"},
    {"model"},
    {"objective", "sampling", "checkpoint"},
    {"estimates"},
    {"training", "evaluation"},
    {"diagnostics"},
    {"tuning"},
    {"experiment", "report"},
    {"recipes"},
    {"parsing"},
    {"keywords"},
    {"api"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """Return the arcmask modules that a file imports, anywhere in it, as dotted names below arcmask."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("arcmask.") for name in names if name.startswith("arcmask.")}


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


def test_no_two_modules_share_a_name():
    """Only commands and their settings do, by design; they may also be called after a package."""
    library = [name for name in FILES if name.split(".")[0] not in ("commands", "settings")]
    homes = defaultdict(list)
    for name in library:
        homes[name.rpartition(".")[2]].append(name)
    assert [names for names in homes.values() if len(names) > 1] == []
    files = {name.rpartition(".")[2] for name in library if FILES[name].name != "__init__.py"}
    edge = {name.rpartition(".")[2] for name in FILES if name.split(".")[0] in ("commands", "settings")}
    assert edge & files == set()


def is_print_to_stdout(node: ast.AST) -> bool:
    """Whether a node is a call of `print` without `file=`, or names sys.stdout."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) == "sys.stdout"
    is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    return is_print and "sys.stderr" not in {ast.unparse(word.value) for word in node.keywords if word.arg == "file"}


def test_only_commands_print_to_standard_output():
    """The library writes progress to standard error alone."""
    library = {name: path for name, path in FILES.items() if name.split(".")[0] not in ("commands", "cli", "__main__")}
    wrong = [
        f"{name}, line {node.lineno}"
        for name, path in library.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if is_print_to_stdout(node)
    ]
    assert wrong == []


def test_every_command_has_its_module_and_only_those_exist():
    from arcmask.cli import COMMANDS

    modules = {name.removeprefix("commands."): path for name, path in FILES.items() if name.startswith("commands.")}
    assert set(modules) == set(COMMANDS)
    for name, path in modules.items():
        functions = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        assert "run" in functions, name
        assert ("dry_run" in functions) == COMMANDS[name].has_dry_run, name


def test_settings_and_recipes_do_not_import_torch():
    light = [f"arcmask.{name}" for name in FILES if name.split(".")[0] in ("settings", "recipes", "cli")]
    code = f"import sys, {', '.join(light)}; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
