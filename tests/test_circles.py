"""No two files of a room import each other, in whatever roundabout way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from autofuse.graph.order import CycleError, stable_order

ROOT = Path(__file__).parent.parent
ROOMS = ("ops", "graph", "frontends", "zoo")


def modules(room: str) -> dict[str, Path]:
    found = (ROOT / "autofuse" / room).rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in found
    }


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the room that a file imports: at its top, inside functions, for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in known else node.module


@pytest.mark.parametrize("room", ROOMS)
def test_no_circle_in_a_room(room: str) -> None:
    known = modules(room)
    names = sorted(known)
    reads = [{names.index(m) for m in imported(known[name], known) if m in known} for name in names]
    try:
        assert len(stable_order(reads)) == len(names)
    except CycleError as error:
        pytest.fail(f"a circle of imports goes through {names[error.member]}")


def test_order_is_stable_and_names_a_member_of_a_circle() -> None:
    assert stable_order([(), (3,), (), (2,)]) == [0, 2, 3, 1]
    with pytest.raises(CycleError) as caught:
        stable_order([(2,), (), (3,), (2,)])
    assert caught.value.member in (2, 3)
