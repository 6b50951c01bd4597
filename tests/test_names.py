"""No two public classes or type aliases share a name, but for those that still do."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Names that are still shared. The list only shrinks: give a new thing a name of its own, and strike
# out what has been renamed. A table of the database is called as the record it keeps.
SHARED: set[str] = {
    "Argument",
    "Array",
    "Arrays",
    "Bodies",
    "Chooser",
    "Compile",
    "Fold",
    "Key",
    "Pair",
    "Row",
    "Scalar",
    "Score",
    "Shape",
    "Store",
}
TABLES = "tuning_db/models.py"


def public(path: Path) -> Iterator[str]:
    """Classes and aliases of types; constants are all capitals."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        if isinstance(node, ast.Assign):
            names = (t.id for t in node.targets if isinstance(t, ast.Name))
            yield from (n for n in names if n[0].isupper() and not n.isupper())


def shared_names(paths: Iterator[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for name in public(path):
            if not name.startswith("_") and str(path).endswith(TABLES) is False:
                found[name].append(str(path))
    return {name: where for name, where in found.items() if len(where) > 1}


def test_no_more_names_are_shared_than_were() -> None:
    parts = ("autofuse", "search_spaces", "tuning_db")
    found = shared_names(p for part in parts for p in sorted((ROOT / part).rglob("*.py")))
    assert {n: w for n, w in found.items() if n not in SHARED} == {}
    assert SHARED - found.keys() == set(), "no longer shared: strike them out"


@pytest.mark.parametrize("text", ["class Kernel: ...", "Kernel = int | str"])
def test_a_shared_name_is_seen(tmp_path: Path, text: str) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(text)
    assert list(shared_names(iter(sorted(tmp_path.glob("*.py"))))) == ["Kernel"]
