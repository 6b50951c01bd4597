"""Imports go one way and in no circle, and files and functions stay small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from benchmarks.house.measures import statements
from tests.support.extending import EXTENSIONS
from tests.support.extending import HERE as EXTENSION_FILES

ROOT = Path(__file__).parent.parent
PACKAGES = ("autofuse", "search_spaces", "tuning_db", "benchmarks")
FILE_LINES, FUNCTION_LINES, HARD_LINES = 400, 40, 80
# Functions between 40 and 80 lines are exceptions.
LONG_SHARE = 0.01

# What each room may import, besides itself. "autofuse" are the public names in its __init__.
BASE = {"collector", "errors", "limits", "ops", "order", "patience"}
TO_PLAN = BASE | {"graph", "plan"}
TO_COST = TO_PLAN | {"cost"}
TO_BACKENDS = TO_PLAN | {"kernel", "records", "backends"}
TO_MEASURE = TO_BACKENDS | {"measure", "cost"}
TO_TUNING = TO_MEASURE | {
    "simplify", "enumerate", "cover", "baselines", "search", "runtime", "search_spaces", "devices",
    "tuning_db",
}  # fmt: skip
TO_PEERS = TO_TUNING | {"frontends", "zoo", "tuning"}
TO_COMMANDS = TO_PEERS | {
    "serving", "fleet", "report", "sources", "peers", "casestudy", "study", "autofuse", "units",
}  # fmt: skip
MAY_IMPORT = {
    "collector": set(),
    "errors": set(),
    "faults": {"errors"},
    "limits": set(),
    "order": set(),
    "patience": set(),
    "version": set(),
    "units": set(),
    "records": {"errors"},
    "ops": {"errors"},
    "graph": BASE,
    "frontends": BASE | {"graph"},
    "zoo": BASE | {"graph", "frontends"},
    "sources": BASE | {"graph", "frontends", "zoo"},
    "simplify": BASE | {"graph"},
    "plan": BASE | {"graph"},
    "cost": TO_PLAN | {"records"},
    "enumerate": TO_COST,
    "baselines": TO_COST,
    "kernel": TO_PLAN,
    "backends": TO_BACKENDS | {"faults"},
    "measure": TO_MEASURE,
    "cover": {"errors", "order"},
    "search": {"errors"},
    "report": {"errors", "order", "records", "units"},
    "search_spaces": TO_COST | {"kernel", "enumerate"},
    "tuning_db": {"errors", "records"},
    "devices": TO_MEASURE | {"search_spaces"},
    "runtime": TO_MEASURE,
    "tuning": TO_TUNING | {"faults", "units"},
    "serving": TO_TUNING | {"tuning", "version"},
    "fleet": TO_TUNING | {"frontends", "tuning"},
    "interop": TO_TUNING | {"frontends", "tuning", "serving"},
    "autofuse": {
        "errors",
        "graph",
        "plan",
        "frontends",
        "tuning",
        "serving",
        "interop",
        "torch",
        "version",
    },
    "peers": TO_PEERS,
    "casestudy": TO_PEERS | {"peers"},
    "study": TO_TUNING | {"tuning", "units", "report"},
    "commands": TO_COMMANDS,
    "cli": TO_COMMANDS | {"commands"},
    "torch": {"interop"},
    "__main__": {"cli"},
    "benchmarks": {"faults"} | TO_COMMANDS | {"interop", "torch", "commands"},
}
# The folders of a room, and what each may import of it, besides itself. "" are the modules that lie
# in no folder: what folders have in common, and what puts them together.
FOLDERS: dict[str, dict[str, set[str]]] = {
    "kernel": {
        "ir": set(),
        "cuda": {"ir"},
        "elements": {"ir"},
        "library": {"text"},
        "passes": {"ir", "cuda"},
        "tiles": {"ir", "cuda", "elements", "passes"},
        "text": {"ir", "cuda"},
    },
    "plan": {"": {"fusion"}, "schedules": {""}, "fusion": {"", "schedules"},
             "program": {"", "schedules", "fusion"}},
    "tuning": {"search": {""}, "explain": {"", "search"}, "serve": {"", "search"},
               "job": {"", "search", "serve"}},
    "measure": {"timing": set(), "check": {""}, "truth": {"", "check"}, "calibrate": {""},
                "worker": {"", "timing", "check", "truth"}},
    "frontends": {each: {""} for each in ("array_api", "jax", "json", "onnx", "torch")},
    "graph": {"composites": {""}, "surgery": {""}},
    "baselines": {"inductor": {""}, "nvfuser": {""}, "tensorrt": {""}, "xla": {""},
                  "priority": {"", "xla"}},
    "interop": {each: {""} for each in ("jax", "onnx", "torch")},
    "backends": {"cpu": {""}, "emulator": {""}, "cuda": {"", "emulator"}},
}  # fmt: skip
Trees = dict[Path, ast.Module]
Known = Mapping[str, Path]


def module_of(path: Path) -> str:
    """autofuse.graph.types for autofuse/graph/types.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = sorted(path for part in PACKAGES for path in (ROOT / part).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULES = {module_of(path): path for path in SOURCES}


def room_of(module: str) -> str | None:
    """The room a module belongs to; None for other people's modules."""
    first, *rest = module.split(".")
    if first == "autofuse":
        return rest[0] if rest else "autofuse"
    return first if first in PACKAGES else None


def imported(path: Path, tree: ast.Module, known: Known = MODULES) -> Iterator[tuple[int, str]]:
    """(line, module) of every import: at the top, inside functions, for types only. Of `from a
    import b` it is a.b where that is a module."""
    package = module_of(path if path.name == "__init__.py" else path.parent)
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(around if node.level else ()), *filter(None, [node.module])])
            for name in node.names:
                inner = f"{base}.{name.name}"
                yield node.lineno, inner if inner in known else base


def violations(path: Path, tree: ast.Module) -> Iterator[str]:
    """Imports that MAY_IMPORT forbids."""
    ours = room_of(module_of(path))
    assert ours is not None
    for line, name in imported(path, tree):
        theirs = room_of(name)
        if theirs is not None and theirs != ours and theirs not in MAY_IMPORT[ours]:
            yield f"{path.relative_to(ROOT)}:{line}: {ours} imports {theirs}"


def folder_of(module: str, known: Known = MODULES) -> str:
    """The folder of its room that a module lies in; "" for none."""
    parts = module.split(".")[2:]
    is_folder = module in known and known[module].name == "__init__.py"
    return parts[0] if parts and (len(parts) > 1 or is_folder) else ""


def wrong_doors(path: Path, tree: ast.Module) -> Iterator[str]:
    """Imports that FOLDERS forbids."""
    module = module_of(path)
    room = room_of(module)
    allowed = FOLDERS.get(room or "", {})
    ours = folder_of(module)
    if ours not in allowed:
        return
    for line, name in imported(path, tree):
        theirs = folder_of(name)
        inside = room_of(name) == room and name != f"autofuse.{room}"
        if inside and theirs not in {ours, *allowed[ours]}:
            yield f"{path.relative_to(ROOT)}:{line}: {room}/{ours} imports {room}/{theirs}"


def circle(reads: Mapping[str, Iterable[str]]) -> list[str]:
    """Members that read each other in turn, the first one again at the end; none: no circle."""
    try:
        TopologicalSorter(reads).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def circle_of_imports(trees: Trees) -> list[str]:
    """As `circle`, of modules."""
    known = {module_of(path): path for path in trees}
    return circle(
        {
            module_of(path): {name for _, name in imported(path, tree, known) if name in known}
            for path, tree in trees.items()
        }
    )


def functions(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """(name, line, lines without the docstring) of every function."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                doc = node.body[0]
                lines -= doc.end_lineno - doc.lineno + 1
            yield node.name, node.lineno, lines


@pytest.fixture(scope="module")
def trees() -> Trees:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_every_room_has_its_place(trees: Trees) -> None:
    assert {room_of(module_of(path)) for path in trees} == set(MAY_IMPORT)


def test_the_rules_themselves_go_one_way() -> None:
    others = {room: allowed - {room} for room, allowed in MAY_IMPORT.items()}
    assert set().union(*others.values()) <= set(MAY_IMPORT)
    assert circle(others) == []


def test_imports_go_one_way(trees: Trees) -> None:
    assert [found for path, tree in trees.items() for found in violations(path, tree)] == []


def test_folders_of_a_room_go_one_way(trees: Trees) -> None:
    assert [found for path, tree in trees.items() for found in wrong_doors(path, tree)] == []


def test_every_folder_of_a_furnished_room_has_its_place(trees: Trees) -> None:
    for room, folders in FOLDERS.items():
        there = {folder_of(m) for m in map(module_of, trees) if m.startswith(f"autofuse.{room}.")}
        assert there - {""} == set(folders) - {""}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("autofuse/kernel/passes/toy.py", "from autofuse.kernel.text.c.dot import dot_text"),
        ("autofuse/kernel/text/cuda/toy.py", "from autofuse.kernel.passes import run_passes"),
        ("autofuse/plan/schedules/toy.py", "from autofuse.plan.fusion.groups import reads"),
        ("autofuse/tuning/search/toy.py", "from autofuse.tuning.job import tuner"),
    ],
)
def test_a_wrong_door_is_seen(where: str, text: str) -> None:
    assert len(list(wrong_doors(ROOT / where, ast.parse(text)))) == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("autofuse/ops/toy.py", "from autofuse.graph.types import Graph"),
        ("autofuse/search/toy.py", "def f():\n    import autofuse.plan.types"),
        ("autofuse/report/toy.py", "from autofuse import tuning"),
        ("autofuse/graph/toy.py", "from ..plan import types"),
        ("autofuse/tuning/toy.py", "from autofuse import tune"),
        ("tuning_db/toy.py", "from autofuse.plan.types import Candidate"),
        ("search_spaces/toy.py", "from tuning_db import Store"),
    ],
)
def test_a_wrong_import_is_seen(where: str, text: str) -> None:
    assert len(list(violations(ROOT / where, ast.parse(text)))) == 1


def test_no_modules_import_each_other(trees: Trees) -> None:
    assert circle_of_imports(trees) == []


@pytest.mark.parametrize(
    "texts",
    [
        {"a.py": "from autofuse.plan.b import x", "b.py": "def f():\n    from . import a"},
        {"a.py": "from autofuse.plan import x", "__init__.py": "from autofuse.plan.a import x"},
        {"a.py": "import autofuse.plan.b", "b.py": "from .c import x", "c.py": "from .a import y"},
        {"a.py": "if TYPE_CHECKING:\n    from autofuse.plan.a import x"},
    ],
)
def test_a_circle_is_seen(texts: dict[str, str]) -> None:
    trees = {ROOT / "autofuse" / "plan" / name: ast.parse(text) for name, text in texts.items()}
    found = circle_of_imports(trees)
    assert found[0] == found[-1] and set(found) == {module_of(path) for path in trees}


def test_files_fit_the_budget() -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (*SOURCES, *TESTS)}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > FILE_LINES} == {}


def test_functions_fit_the_budget(trees: Trees) -> None:
    every = [(path, *f) for path, tree in trees.items() for f in functions(tree)]
    long = [
        f"{p.relative_to(ROOT)}:{line} {name}: {n}"
        for p, name, line, n in every
        if n > FUNCTION_LINES
    ]
    assert [text for text in long if int(text.rpartition(" ")[2]) > HARD_LINES] == []
    assert len(long) <= LONG_SHARE * len(every), long


def test_extensions_keep_to_the_rooms(trees: Trees) -> None:
    named = {ROOT / file for each in EXTENSIONS.values() for file, _ in each.lines}
    texts = {path: path.read_text(encoding="utf-8") for path in named}
    for extension in EXTENSIONS.values():
        texts[ROOT / extension.file] = (EXTENSION_FILES / extension.file).read_text(
            encoding="utf-8"
        )
        for file, line in extension.lines:
            texts[ROOT / file] += f"{line}\n"
    trees = trees | {path: ast.parse(text) for path, text in texts.items()}
    assert [found for path, tree in trees.items() for found in violations(path, tree)] == []
    assert circle_of_imports(trees) == []


def test_the_map_shows_every_room_after_what_it_imports() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert sorted(rooms) == sorted(MAY_IMPORT)
    for place, room in enumerate(rooms):
        assert MAY_IMPORT[room] - {room} <= set(rooms[:place]), room


def test_no_test_imports_another() -> None:
    """What is shared lies in tests/support: else collecting one file runs another."""
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS}
    assert [found for path, text in texts.items() for found in borrowed(path, text)] == []


def borrowed(path: Path, text: str) -> Iterator[str]:
    """Imports of tests by others, under any of the names that they would be found by."""
    known = {f"{prefix}{test.stem}": test for test in TESTS for prefix in ("", "tests.")}
    for line, module in imported(path, ast.parse(text), known):
        if module.rpartition(".")[2].startswith("test_") and module in known:
            yield f"{path.relative_to(ROOT)}:{line} imports {module}"


@pytest.mark.parametrize(
    "line",
    [
        "from tests.test_a import x",
        "from tests import test_a",
        "import test_a",
        "from . import test_a",
    ],
)
def test_imports_of_tests_are_seen(line: str) -> None:
    line = line.replace("test_a", "test_layers")
    assert list(borrowed(ROOT / "tests" / "test_b.py", line)) != []
    assert list(borrowed(ROOT / "tests" / "test_b.py", "from tests.support import seeds")) == []
