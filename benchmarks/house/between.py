"""What is seen between files alone: who imports whom, and equal runs of lines."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import networkx as nx

from benchmarks.house.measures import statements

EQUAL_LINES = 6


def module_of(path: Path) -> str:
    """autofuse.graph.types for autofuse/graph/types.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(named: Mapping[Path, Collection[str]]) -> nx.DiGraph[str]:
    """Modules, with an edge to each that one imports; given are the names that each imports."""
    known = {module_of(path): path for path in named}
    found: nx.DiGraph[str] = nx.DiGraph()
    found.add_nodes_from(known)
    for path, names in named.items():
        for name in names:
            # `from a import b` names a module or something in it.
            near = next((n for n in (name, name.rpartition(".")[0]) if n in known), None)
            if near is not None and near != module_of(path):
                found.add_edge(module_of(path), near)
    return found


def imported(path: Path, tree: ast.Module) -> Iterator[str]:
    """What a file imports anywhere in its text: modules, or names in modules."""
    package = module_of(path if path.name == "__init__.py" else path.parent).split(".")
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*around, *filter(None, [node.module])])
            yield from (f"{base}.{name.name}" for name in node.names)


def with_one_importer(graph: nx.DiGraph[str]) -> list[str]:
    """Modules that exactly one other imports: often a part of it."""
    return sorted(name for name, count in graph.in_degree() if count == 1)


def circles(graph: nx.DiGraph[str]) -> list[list[str]]:
    """Sets of modules that import each other, in a roundabout way too."""
    return sorted(sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def repeated(texts: Mapping[Path, str]) -> Counter[Path]:
    """Runs of `EQUAL_LINES` or more lines that stand elsewhere too, by file. Spaces around lines,
    empty lines, comments and imports do not count."""
    places: defaultdict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
    for path, text in sorted(texts.items()):
        lines = _telling(text)
        for first in range(len(lines) - EQUAL_LINES + 1):
            places[tuple(lines[first : first + EQUAL_LINES])].append((path, first))
    again = sorted(place for same in places.values() if len(same) > 1 for place in same)
    # Windows that overlap are one run.
    runs = groupby(enumerate(again), key=lambda each: (each[1][0], each[1][1] - each[0]))
    return Counter(path for (path, _), _ in runs)


def _telling(text: str) -> list[str]:
    lines, opened = list[str](), False
    for line in map(str.strip, text.splitlines()):
        is_import = opened or line.startswith(("import ", "from "))
        opened = is_import and (opened or line.endswith("(")) and not line.startswith(")")
        if line and not is_import and not line.startswith("#"):
            lines.append(line)
    return lines
