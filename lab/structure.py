"""Structure figures of the package, read from its sources without importing them.

`python -m lab.structure [PATH ...]` prints one column for each checkout; the default is this one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TypeAlias

PACKAGE = "airflow_mq"
QUEUE = f"{PACKAGE}.engine.queue"
#: The class that loads, changes and writes the rows of one operation; it was `SqlShelf` before 0.3.
WORKING_SETS = ("WorkingSet", "SqlShelf")
#: The methods of a unit of work that take a statement's name first.
STATEMENT_METHODS = {"rows", "run", "soon", "put"}
STATEMENT_HEADER = re.compile(r"^-- name: *(\w+)", re.MULTILINE)
SUPPRESSION = re.compile(r"#.*(type: ignore|noqa)")

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
Figures: TypeAlias = "dict[str, int | float | str]"


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    is_package: bool

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """The source lines."""
        return self.text.splitlines()

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The top-level classes by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def functions(self) -> list[Function]:
        """All functions, nested ones and methods included."""
        return [node for node in ast.walk(self.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Imported names: local name to (module, original name)."""
        found: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                source = self.source_of(node)
                found.update({alias.asname or alias.name: (source, alias.name) for alias in node.names})
            elif isinstance(node, ast.Import):
                found.update({alias.asname or alias.name: (alias.name, "") for alias in node.names})
        return found

    def source_of(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that `from … import` names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        package = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*package, *(node.module.split(".") if node.module else [])])


@dataclass
class Sources:
    """All sources of the package in one checkout."""

    root: Path
    modules: dict[str, Module] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> Sources:
        """Read every Python file of the package below `root`."""
        sources = cls(root)
        for path in sorted((root / PACKAGE).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            sources.modules[name] = Module(name, path, path.read_text("utf-8"), is_package)
        if not sources.modules:
            raise SystemExit(f"no package {PACKAGE!r} (in {root}): expected the root of a checkout")
        return sources

    def resolve(self, module: str, name: str) -> tuple[Module, ast.ClassDef] | None:
        """Return the class that `name` means in `module`, or None if the package does not define it."""
        for _ in range(10):
            home = self.modules.get(module)
            if home is None:
                return None
            if name in home.classes:
                return home, home.classes[name]
            if name not in home.imports:
                return None
            module, name = home.imports[name]
        return None

    def lineage(self, module: str, name: str) -> list[tuple[Module, ast.ClassDef]]:
        """Return a class of the package and its base classes in the package, each once."""
        found: dict[tuple[str, str], tuple[Module, ast.ClassDef]] = {}
        waiting = [self.resolve(module, name)]
        while waiting:
            entry = waiting.pop(0)
            if entry is None or (entry[0].name, entry[1].name) in found:
                continue
            found[entry[0].name, entry[1].name] = entry
            waiting += [self.resolve(entry[0].name, base) for base in _base_names(entry[1])]
        return list(found.values())

    def find_class(self, *names: str) -> tuple[str, str] | None:
        """Return module and name of the first of `names` that the package defines."""
        homes = {name: module.name for module in self.modules.values() for name in module.classes}
        return next(((homes[name], name) for name in names if name in homes), None)


def _base_names(node: ast.ClassDef) -> Iterator[str]:
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(inner, ast.Name):
            yield inner.id


# -- classes --


def queue_figures(sources: Sources) -> Figures:
    """Count the base classes and the public methods of `MessageQueue`."""
    lineage = sources.lineage(QUEUE, "MessageQueue")
    methods = {name for _, node in lineage for name in _public_methods(node)}
    return {"MessageQueue: base classes": len(lineage) - 1, "MessageQueue: public methods": len(methods)}


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    for entry in node.body:
        is_function = isinstance(entry, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and not entry.name.startswith("_") and not _is_attribute(entry):
            yield entry.name


def _is_attribute(node: Function) -> bool:
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def working_set_figures(sources: Sources) -> Figures:
    """Count the base classes, files and assigned attributes of the working set."""
    home = sources.find_class(*WORKING_SETS)
    lineage = sources.lineage(*home) if home else []
    attributes = {name for _, node in lineage for name in _assigned_attributes(node)}
    return {
        "working set: base classes": max(len(lineage) - 1, 0),
        "working set: files": len({module.name for module, _ in lineage}),
        "working set: attributes": len(attributes),
    }


def _assigned_attributes(node: ast.ClassDef) -> Iterator[str]:
    for entry in ast.walk(node):
        is_assigned = isinstance(entry, ast.Attribute) and isinstance(entry.ctx, ast.Store)
        if is_assigned and isinstance(entry.value, ast.Name) and entry.value.id == "self":
            yield entry.attr


# -- SQL --


def sql_figures(sources: Sources) -> Figures:
    """Count SQL files, statements, and statement names that code outside `store/` uses."""
    paths = sorted((sources.root / PACKAGE).rglob("*.sql"))
    texts = {path: path.read_text("utf-8") for path in paths}
    tiny = sum(len([line for line in text.splitlines() if line.strip()]) <= 2 for text in texts.values())
    names = _statement_names(texts)
    outside = [use for module in sources.modules.values() for use in _statement_uses(module, names)]
    return {
        "SQL files": len(paths),
        "SQL files of two lines or fewer": tiny,
        "statement names outside store/": len(set(outside)),
        "uses of statement names outside store/": len(outside),
    }


def _statement_names(texts: Mapping[Path, str]) -> set[str]:
    headers = {name for text in texts.values() for name in STATEMENT_HEADER.findall(text)}
    files = {path.stem for path, text in texts.items() if "queries" in path.parts and not STATEMENT_HEADER.search(text)}
    return headers | files


def _statement_uses(module: Module, names: set[str]) -> Iterator[str]:
    if module.name.startswith(f"{PACKAGE}.engine.store"):
        return
    for node in ast.walk(module.tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if is_call and node.func.attr in STATEMENT_METHODS:
            for word in ast.walk(node.args[0]):
                if isinstance(word, ast.Constant) and word.value in names:
                    yield word.value


# -- types and suppressed checks --


def typing_figures(sources: Sources) -> Figures:
    """Count `Any`, formatter exemptions and suppressed checks."""
    modules = sources.modules.values()
    return {
        "Any in the package": sum(_count_any(module.tree) for module in modules),
        "Any in public signatures": sum(map(_count_public_any, modules)),
        "fmt: skip": sum("fmt: skip" in line for module in modules for line in module.lines),
        "suppressed checks": sum(bool(SUPPRESSION.search(line)) for module in modules for line in module.lines),
    }


def _count_any(tree: ast.AST) -> int:
    names = sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
    quoted = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return names + sum(len(re.findall(r"\bAny\b", text)) for text in quoted if re.fullmatch(r"[\w\[\], .|]+", text))


def _count_public_any(module: Module) -> int:
    if any(part.startswith("_") for part in module.name.split(".")):
        return 0
    return sum(_count_signature_any(function) for function in _public_functions(module.tree))


def _public_functions(tree: ast.Module | ast.ClassDef) -> Iterator[Function]:
    for node in tree.body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.name.startswith("_") and node.name not in ("__init__", "__call__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from _public_functions(node)
        else:
            yield node


def _count_signature_any(function: Function) -> int:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in every if argument is not None] + [function.returns]
    return sum(_count_any(annotation) for annotation in annotations if annotation is not None)


# -- commands --


def command_figures(sources: Sources) -> Figures:
    """Count the commands and groups at the top of the command line."""
    tree = sources.modules.get(f"{PACKAGE}.cli.parser")
    entries = 0
    for node in tree.tree.body if tree else []:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == "TREE" and isinstance(node.value, ast.Tuple):
            entries = len(node.value.elts)
    return {"top-level commands": entries}


# -- sizes --


def size_figures(sources: Sources) -> Figures:
    """Measure files and functions in source lines."""
    lines = {module.path: len(module.lines) for module in sources.modules.values()}
    lengths = {
        f"{module.path.relative_to(sources.root)}:{function.name}": _length(function)
        for module in sources.modules.values()
        for function in module.functions
    }
    longest, file = max(lengths, key=lengths.__getitem__), max(lines, key=lines.__getitem__)
    return {
        "Python files": len(lines),
        "source lines of Python": sum(lines.values()),
        "functions": len(lengths),
        "median function": median(lengths.values()),
        "functions above 40 lines": sum(length > 40 for length in lengths.values()),
        "longest function": lengths[longest],
        "  which is": longest,
        "files above 400 lines": sum(length > 400 for length in lines.values()),
        "longest file": lines[file],
        "  which is ": str(file.relative_to(sources.root)),
    }


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


# -- import cycles --


def cycle_figures(sources: Sources) -> Figures:
    """Count modules that import each other in a circle, also where only the type checker imports."""
    return {
        "modules in import cycles": _count_cyclic(sources, for_types=False),
        "  with type-checking imports": _count_cyclic(sources, for_types=True),
    }


def _count_cyclic(sources: Sources, for_types: bool) -> int:
    graph = {
        name: {_known(sources, target) for target in _imported(module, for_types)} - {name, ""}
        for name, module in sources.modules.items()
    }
    return sum(name in _reachable(graph, name) for name in graph)


def _imported(module: Module, for_types: bool) -> Iterator[str]:
    skipped = set() if for_types else {id(node) for block in _type_blocks(module) for node in ast.walk(block)}
    for node in _module_level(module.tree) if not for_types else ast.walk(module.tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            source = module.source_of(node)
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _type_blocks(module: Module) -> Iterator[ast.If]:
    for node in module.tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield node


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk everything that runs at import, that is, everything outside functions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)


def _known(sources: Sources, name: str) -> str:
    """Return the module that an imported name belongs to, or "" if it is not in the package."""
    if name in sources.modules:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in sources.modules else ""


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


FIGURES: tuple[Callable[[Sources], Figures], ...] = (
    queue_figures,
    working_set_figures,
    sql_figures,
    typing_figures,
    command_figures,
    size_figures,
    cycle_figures,
)


def measure(root: Path) -> Figures:
    """Return all figures of one checkout."""
    sources = Sources.read(root)
    return {title: value for figures in FIGURES for title, value in figures(sources).items()}


def main(words: list[str]) -> None:
    """Print a Markdown table with one column for each checkout."""
    parser = argparse.ArgumentParser(prog="python -m lab.structure", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1]], metavar="PATH")
    paths = parser.parse_args(words).paths
    columns = [measure(path) for path in paths]
    print(f"| | {' | '.join(path.resolve().name for path in paths)} |")
    print(f"| --- |{' --- |' * len(paths)}")
    for title in columns[0]:
        print(f"| {title} | {' | '.join(f'{column[title]}' for column in columns)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
