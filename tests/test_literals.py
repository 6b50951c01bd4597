"""Array constants in the keys of graphs: whole digests, and texts from before they were whole."""

import re
import struct
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import digest, group_digest, text
from autofuse.graph.family import distance, family
from autofuse.graph.readback import read_text
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.types import Literal, TensorType
from autofuse.records import Cost, Measurement
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_candidate
from tests.support.tuning_records import timing
from tuning_db import Store
from tuning_db.transfer import export_lines, import_lines

KIND = device_named("cpu")


COLLISION = ("487c44ec7f105fda", "b7e62f41d0d646e9")
# Digests of `holding` as they were before arrays had whole digests.
KEPT = (
    (0.0, "3455c4c5aec19fbe69692642da79fca6"),
    (-0.0, "42e479f82593174e7841840ee1cf82c6"),
    (np.nan, "943e41364d633c74d4cfafd7287f9e48"),
    (2.5, "9ba3f36ba0f4a874b8802150a7a3b408"),
)


def holding(literal: Literal) -> Graph:
    b = GraphBuilder()
    x = b.input("x", literal.type.shape, literal.type.dtype)
    return b.build([b.add("add", x, b.add("constant", value=literal))])


def old_digits(literal: Literal) -> str:
    """What the text of a literal had of its bytes before names were whole."""
    return sha256(literal.data).hexdigest()[: 8 if literal.type.size == 1 else 16]


def alike_nans() -> tuple[Literal, Literal]:
    """Two NaNs of f64 that had one name: 32 bits of a hash are a second's search."""
    seen: dict[str, Literal] = {}
    for payload in range(1, 1 << 20):
        data = struct.pack("<Q", 0x7FF8_0000_0000_0000 | payload)
        literal = Literal(TensorType((), DType.F64), data)
        other = seen.setdefault(old_digits(literal), literal)
        if other != literal:
            return other, literal
    raise AssertionError("no two NaNs collide")


def test_nans_that_had_one_name_are_two_graphs() -> None:
    one, other = alike_nans()
    assert old_digits(one) == old_digits(other)
    assert digest(holding(one)) != digest(holding(other))


def test_arrays_with_one_short_digest_are_two_graphs() -> None:
    """Two arrays whose SHA-256 have the same first 64 bits, found by a search of 2^32 steps."""
    kind = TensorType((8,), DType.U8)
    one, other = (Literal(kind, bytes.fromhex(data)) for data in COLLISION)
    assert one != other and old_digits(one) == old_digits(other)
    graphs = holding(one), holding(other)
    assert digest(graphs[0]) != digest(graphs[1])
    groups = [group_digest(g, range(len(g.nodes)), g.outputs) for g in graphs]
    assert groups[0] != groups[1]


def test_a_name_is_in_a_domain_of_its_own() -> None:
    """The bytes of a constant may be anything, the text of a graph too: their digests are none of
    each other's, and the type is part of the name."""
    content = text(holding(Literal.of(np.arange(3.0), DType.F32))).encode()
    literal = Literal(TensorType((len(content),), DType.U8), content)
    assert literal.digest != sha256(content).hexdigest()
    assert literal.digest != Literal(TensorType((len(content),), DType.I8), content).digest


def test_graphs_without_arrays_keep_their_digests() -> None:
    """As they were before: what is known of them stays known."""
    for value, known in KEPT:
        assert digest(holding(Literal.of(np.asarray(value), DType.F32))) == known


def test_older_texts_are_read_told_apart_and_of_the_family() -> None:
    graph = holding(Literal.of(np.arange(6.0), DType.F32))
    now = text(graph)
    before = re.sub(r"sha256:\w+#\w+", f"sha256:{'1f' * 8}#{'1f' * 4}", now)
    assert before != now
    for written in (before, now):
        assert [n.types for n in read_text(written).nodes] == [n.types for n in graph.nodes]
    assert family(before) == family(now) and distance(before, now) == 0


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf, 1.5])
def test_scalars_are_read_back(value: float) -> None:
    graph = holding(Literal.of(np.asarray(value), DType.F32))
    assert read_text(text(graph)).nodes[1].attrs == graph.nodes[1].attrs


def test_an_odd_nan_is_read_back_as_a_nan() -> None:
    graph = holding(alike_nans()[0])
    value = dict(read_text(text(graph)).nodes[1].attrs)["value"]
    assert np.isnan(value.scalar)


def test_what_is_stored_under_an_older_text_is_kept_shown_and_moved(tmp_path: Path) -> None:
    """Older names cannot be made whole, since the arrays are not stored: such a row stays as it is,
    under its own digest, and its plan is what the same program begins with."""
    graph = normal_form(holding(Literal.of(np.array([3.0, -1.0, 4.0, 1.5]), DType.F32)))
    before = re.sub(r"sha256:\w+#\w+", f"sha256:{'1f' * 8}#{'1f' * 4}", text(graph))
    assert before != text(graph)
    name = sha256(before.encode()).hexdigest()[:32]
    candidate, _ = baseline_candidate(graph, "unfused", KIND.space)
    known = Measurement(
        name, candidate.to_json(), candidate.digest, "unfused", len(candidate.launches), (),
        timing(), None, 0.0, Cost(0.0, 0.0, 0.0, 0.0), "final",
    )  # fmt: skip
    with Store.open(tmp_path / "t.db") as store:
        store.add_workload(name, before, "", len(graph.nodes))
        assert store.promote(None, KIND.backend.environment(), known, None)
        assert [row.text for row in store.workloads()] == [before]
        told = list(export_lines(store))
    with Store.open(tmp_path / "copy.db") as copy:
        import_lines(copy, told)
        assert list(export_lines(copy)) == told
    served = autofuse.compile(graph, device="cpu", db=str(tmp_path / "copy.db"))
    assert served.origin == f"moved from {name[:12]}"
