"""Imports go one way, and files and functions stay small."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILE_LINES, FUNCTION_LINES, HARD_LINES = 400, 40, 80
# Functions between 40 and 80 lines are exceptions.
LONG_SHARE = 0.01

# What each part may import, besides itself. "autofuse" is the package's own __init__.
BASE = {"errors", "ops"}
TO_PLAN = BASE | {"graph", "plan"}
TO_COST = TO_PLAN | {"cost"}
TO_BACKENDS = TO_PLAN | {"kernel", "records", "backends"}
TO_MEASURE = TO_BACKENDS | {"measure", "cost"}
TO_TUNING = TO_MEASURE | {
    "enumerate", "cover", "baselines", "search", "runtime", "search_spaces", "devices", "tuning_db",
}  # fmt: skip
TO_PEERS = TO_TUNING | {"frontends", "zoo", "tuning", "autofuse"}
TO_COMMANDS = TO_PEERS | {"report", "sources", "peers", "casestudy"}
MAY_IMPORT = {
    "errors": set(),
    "records": set(),
    "ops": {"errors"},
    "graph": BASE,
    "frontends": BASE | {"graph"},
    "zoo": BASE | {"graph", "frontends"},
    "sources": BASE | {"graph", "frontends", "zoo"},
    "plan": BASE | {"graph"},
    "cost": TO_PLAN,
    "enumerate": TO_COST,
    "baselines": TO_COST,
    "kernel": TO_PLAN,
    "backends": TO_BACKENDS,
    "measure": TO_MEASURE,
    "cover": {"errors"},
    "search": {"errors"},
    "report": {"errors", "records"},
    "search_spaces": TO_COST | {"kernel", "enumerate"},
    "tuning_db": {"errors", "records"},
    "devices": TO_MEASURE | {"search_spaces"},
    "runtime": TO_MEASURE,
    "tuning": TO_TUNING,
    "peers": TO_PEERS,
    "casestudy": TO_PEERS | {"peers"},
    "commands": TO_COMMANDS,
    "cli": TO_COMMANDS | {"commands"},
    "__main__": {"cli"},
    "autofuse": TO_COMMANDS,
    "benchmarks": TO_COMMANDS,
}
SOURCES = sorted(
    path
    for part in ("autofuse", "search_spaces", "tuning_db", "benchmarks")
    for path in (ROOT / part).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def module_of(path):
    """autofuse.graph.types for autofuse/graph/types.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module):
    """The part of the project a module belongs to; None for other people's modules."""
    first, *rest = module.split(".")
    if first == "autofuse":
        return rest[0] if rest else "autofuse"
    return first if first in ("search_spaces", "tuning_db", "benchmarks") else None


def imported(tree, package):
    """(line, module) of every import, inside functions too; `from a import b` may be module a.b."""
    parts = {path.stem for path in (ROOT / "autofuse").iterdir()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base]) if base else ".".join(up)
            if base == "autofuse":
                for name in node.names:
                    yield node.lineno, f"autofuse.{name.name}" if name.name in parts else base
            else:
                yield node.lineno, base


def violations(path, tree):
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    ours = part_of(module)
    for line, name in imported(tree, package):
        theirs = part_of(name)
        if theirs is not None and theirs != ours and theirs not in MAY_IMPORT[ours]:
            yield f"{path.relative_to(ROOT)}:{line}: {ours} imports {theirs}"


def functions(tree):
    """(name, line, lines without the docstring) of every function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                doc = node.body[0]
                lines -= doc.end_lineno - doc.lineno + 1
            yield node.name, node.lineno, lines


@pytest.fixture(scope="module")
def trees():
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def test_every_part_has_its_place(trees):
    parts = {part_of(module_of(path)) for path in trees}
    assert parts - set(MAY_IMPORT) == set()


def test_the_rules_themselves_go_one_way():
    both_ways = {
        frozenset((a, b))
        for a, allowed in MAY_IMPORT.items()
        for b in allowed
        if a in MAY_IMPORT[b] and "autofuse" not in (a, b) and a != b
    }
    assert both_ways == set()


def test_imports_go_one_way(trees):
    assert [found for path, tree in trees.items() for found in violations(path, tree)] == []


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("autofuse/ops/toy.py", "from autofuse.graph.types import Graph"),
        ("autofuse/search/toy.py", "def f():\n    import autofuse.plan.types"),
        ("autofuse/report/toy.py", "from autofuse import tuning"),
        ("autofuse/graph/toy.py", "from ..plan import types"),
        ("tuning_db/toy.py", "from autofuse.plan.types import Candidate"),
        ("search_spaces/toy.py", "from tuning_db import Store"),
    ],
)
def test_a_wrong_import_is_seen(where, text):
    assert len(list(violations(ROOT / where, ast.parse(text)))) == 1


def test_files_fit_the_budget():
    lengths = {p: len(p.read_text().splitlines()) for p in (*SOURCES, *TESTS)}
    assert {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > FILE_LINES} == {}


def test_functions_fit_the_budget(trees):
    every = [(path, *f) for path, tree in trees.items() for f in functions(tree)]
    long = [
        f"{p.relative_to(ROOT)}:{line} {name}: {n}"
        for p, name, line, n in every
        if n > FUNCTION_LINES
    ]
    assert [text for text in long if int(text.rpartition(" ")[2]) > HARD_LINES] == []
    assert len(long) <= LONG_SHARE * len(every), long
