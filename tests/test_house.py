"""The counts of `scripts/house`, and that no number of this checkout has risen above its limit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.house import limits as lim
from benchmarks.house.between import circles, imported, imports, repeated, with_one_importer
from benchmarks.house.limits import Limits
from benchmarks.house.measures import code_lines, complexity, parameters
from benchmarks.house.page import table
from benchmarks.house.rooms import numbers, numbers_of

ROOT = Path(__file__).parent.parent


def function(text: str) -> ast.FunctionDef:
    found = ast.parse(text).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def test_no_number_rose_above_its_limit() -> None:
    """`scripts/house --write --why REASON` raises limits, and lowers them."""
    assert list(lim.raised(numbers(ROOT), lim.read_limits())) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def f(): pass", 1),
        ("def f(x):\n if x: pass\n elif x: pass\n else: pass", 3),
        ("def f(x):\n for _ in x:\n  while x: break\n return 1 if x and x or x else 2", 6),
        ("def f(x):\n try: pass\n except E: pass\n except F: pass\n return [y for y in x if y]", 5),
        ("def f(x):\n match x:\n  case 1: pass\n  case _: pass", 3),
        ("def f(x):\n def g():\n  if x: pass\n return lambda: 1 if x else 2", 1),
    ],
)
def test_branches_are_counted(text: str, wanted: int) -> None:
    assert complexity(function(text)) == wanted


def test_lines_and_parameters_are_counted() -> None:
    assert code_lines(function('def f():\n    """One.\n    Two."""\n    return 1')) == 2
    assert parameters(function("def f(self, a, /, b, *c, d, **e): ...")) == 5
    assert parameters(function("def f(): ...")) == 0


def test_importers_and_circles_are_found() -> None:
    texts = {
        "autofuse/a/__init__.py": "",
        "autofuse/a/one.py": "from autofuse.a import two\n",
        "autofuse/a/two.py": "def f():\n    from .three import x\n",
        "autofuse/a/three.py": "import autofuse.a.one\n",
        "autofuse/b.py": "from autofuse.a.one import y\nimport numpy\n",
    }
    named = {Path(p): list(imported(Path(p), ast.parse(text))) for p, text in texts.items()}
    graph = imports(named)
    names = [f"autofuse.a.{name}" for name in ("one", "three", "two")]
    assert circles(graph) == [names]
    assert with_one_importer(graph) == ["autofuse.a.three", "autofuse.a.two"]


def test_equal_lines_are_one_run() -> None:
    lines = [f"a{k} = {k}" for k in range(9)]
    inner = "\n\n".join(f"    {line}" for line in lines)
    short = "\n".join(lines[:5])
    texts = {Path("a.py"): "\n".join(lines), Path("b.py"): f"if 1:\n{inner}\n", Path("c.py"): short}
    assert repeated(texts) == {Path("a.py"): 1, Path("b.py"): 1}
    imported = "\n".join(f"from a import b{k}" for k in range(9))
    assert repeated({Path("a.py"): imported, Path("b.py"): imported}) == {}


def test_a_room_is_a_folder() -> None:
    texts = {"autofuse/a/b/c.py": "x = 1\ny = 2\n", "autofuse/d.py": "", "tests/support/e.py": "z"}
    found = numbers_of({Path(path): text for path, text in texts.items()})
    assert {room: own["lines"] for room, own in found.items()} == {
        "autofuse": 0, "autofuse/a": 2, "tests": 1,
    }  # fmt: skip
    assert table(found).splitlines()[-1].split()[:3] == ["all", "3", "3"]


def test_limits_rise_with_a_reason_only(tmp_path: Path) -> None:
    old = Limits({"a": {"lines": 100, "files": 2}}, {"a: lines": "more", "a: files": "old"})
    assert list(lim.raised({"a": {"lines": 101}, "b": {"lines": 1}}, old)) == [
        "a: lines rose from 100 to 101", "b: lines rose from 0 to 1",
    ]  # fmt: skip
    assert list(lim.raised(old.most, old)) == list(lim.fallen(old.most, old)) == []
    assert list(lim.fallen({"a": {"lines": 97, "files": 2}}, old)) == [
        "a: lines fell from 100 to 97: lower the limit"
    ]
    assert list(lim.fallen({"a": {"lines": 98, "files": 2}}, old)) == []
    higher = {"a": {"lines": 90, "files": 3}, "b": {"lines": 0}}
    with pytest.raises(ValueError, match="--why these rise: a: files"):
        lim.rewritten(higher, old, "")
    new = lim.rewritten(higher, old, "a toy")
    assert new == Limits(higher, {"a: files": "a toy"})
    lim.write_limits(new, tmp_path / "limits.json")
    assert lim.read_limits(tmp_path / "limits.json") == new
    assert lim.rewritten({"a": {"lines": 99, "files": 2}}, old, "").why == {"a: files": "old"}
