"""The rooms of the house and their numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.house.between import (
    circles,
    imported,
    imports,
    module_of,
    repeated,
    with_one_importer,
)
from benchmarks.house.measures import measures

FOLDERS = ("autofuse", "search_spaces", "tuning_db", "benchmarks", "scripts", "tests")
ONE_IMPORTER, CIRCLES, REPEATED = "one importer", "import circles", "repeated runs of lines"
# Of a room: of each measure, a number.
Numbers = dict[str, dict[str, int]]


def numbers(root: Path) -> Numbers:
    """The measures of every room of a checkout."""
    return numbers_of({path.relative_to(root): text for path, text in _texts(root)})


def _texts(root: Path) -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix == ".py" or (folder == "scripts" and path.is_file()):
                text = path.read_text(encoding="utf-8")
                if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
                    yield path, text


def numbers_of(texts: Mapping[Path, str]) -> Numbers:
    """As `numbers`, of files given as (path in the checkout, text)."""
    rooms = {path: room_of(path) for path in sorted(texts)}
    paths = {module_of(path): path for path in texts}
    found: Numbers = {}

    def add(path: Path, measure: str, count: int) -> None:
        own = found.setdefault(rooms[path], {})
        own[measure] = own.get(measure, 0) + count

    named: dict[Path, list[str]] = {}
    for path in rooms:
        # One tree at a time: the garbage collector goes through all that are kept.
        tree = ast.parse(texts[path])
        named[path] = list(imported(path, tree))
        add(path, "files", 1)
        add(path, "lines", len(texts[path].splitlines()))
        for measure, count in measures(tree).items():
            add(path, measure, count)
    graph = imports(named)
    alone = {paths[name] for name in with_one_importer(graph)}
    turning = [paths[circle[0]] for circle in circles(graph)]
    again = repeated(texts)
    for path in rooms:
        add(path, ONE_IMPORTER, path in alone)
        add(path, CIRCLES, turning.count(path))
        add(path, REPEATED, again[path])
    return dict(sorted(found.items()))


def room_of(path: Path) -> str:
    """autofuse/graph, or the folder at the top; files of autofuse itself are `autofuse`."""
    first, *rest = path.parts[:-1]
    return f"{first}/{rest[0]}" if first == "autofuse" and rest else first
