"""What CONTRIBUTING.md and CHANGELOG.md say is so: the map is whole, examples run, names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cuda_compiles import whole_kernel
from test_layers import MAY_IMPORT

from autofuse.baselines import BASELINES
from autofuse.frontends import spec, trace
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.kernel import passes
from autofuse.ops import spec as table
from autofuse.ops.dtypes import DType
from autofuse.search import SEARCHERS
from autofuse.search.conformance import check_searcher
from autofuse.tuning import compile as compile_plan

Names = dict[str, object]
ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def example(kind: str) -> str:
    """The Python block under a heading."""
    (_, _, rest) = TEXT.partition(f"### {kind}\n")
    found = re.search(r"```python\n(.*?)```", rest.partition("\n### ")[0], re.S)
    assert found is not None, kind
    return found[1]


def small() -> Graph:
    return trace(lambda x: x + x, spec((4, 8)))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Names]:
    """What an example defines; whatever it registers is gone after the test."""
    monkeypatch.setattr(table, "_REGISTRY", dict(table._REGISTRY))
    kept = [(known, dict(known)) for known in (BASELINES, SEARCHERS)]
    names: Names = {}
    exec(compile(example(request.param), "CONTRIBUTING.md", "exec"), names)
    yield names
    for known, before in kept:
        known.clear()
        known.update(before)


@pytest.mark.parametrize("ran", ["An op"], indirect=True)
def test_the_op_is_known(ran: Names) -> None:
    b = GraphBuilder()
    value = b.add("square", b.input("x", (3,), DType.F32))
    assert b.build([value])[1].op == "square"


@pytest.mark.parametrize("ran", ["A baseline"], indirect=True)
def test_the_baseline_plans(ran: Names) -> None:
    assert compile_plan(small(), device="cpu", plan="nothing-fused").origin == "nothing-fused"


@pytest.mark.parametrize("ran", ["A searcher"], indirect=True)
def test_the_searcher_conforms(ran: Names) -> None:
    check_searcher(SEARCHERS["wanderer"])


@pytest.mark.parametrize("ran", ["A kernel pass"], indirect=True)
def test_the_pass_keeps_what_a_kernel_means(ran: Names) -> None:
    chosen = ran["PASSES"]
    assert isinstance(chosen, tuple) and chosen[:-1] == passes.PASSES
    kernel = whole_kernel(small(), "k")
    passes.verify(passes.run_passes(kernel, chosen))


def test_the_map_shows_every_room_after_what_it_imports() -> None:
    rooms = re.findall(r"^\| `(\w+)` \|", TEXT, re.M)
    assert sorted(rooms) == sorted(MAY_IMPORT)
    for place, room in enumerate(rooms):
        # The public names load on demand, so that those below may be asked for them.
        below = MAY_IMPORT[room] - {room, "autofuse"}
        assert below <= set(rooms[:place]), room


def test_what_is_named_exists() -> None:
    names = re.findall(r"`((?:tests|scripts|docs|benchmarks|autofuse)/[\w./]+)`", TEXT)
    assert len(names) > 8
    gaps = {"autofuse/devices.py"}
    assert [n for n in names if n not in gaps and not (ROOT / n).exists()] == []
    for script in re.findall(r"scripts/(\w+)", TEXT):
        assert (ROOT / "scripts" / script).exists(), script
