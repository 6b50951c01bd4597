"""A layer is one program, whoever it was written with: its digest is the same."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("jax")  # extras of their own
pytest.importorskip("torch")  # as jax
pytest.importorskip("onnx")  # as jax

from autofuse.frontends.array_api import elementwise as xp_elementwise
from autofuse.frontends.jax.interp import RULES as JAX_RULES
from autofuse.frontends.names import NAMES, Kind
from autofuse.frontends.onnx.export import WRITERS
from autofuse.frontends.onnx.rules import RULES as ONNX_RULES
from autofuse.frontends.torch.rules import RULES as TORCH_RULES
from autofuse.graph.canonical import digest
from autofuse.graph.composites.activations import leaky_relu
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.simplify import normal_form
from tests.support.layer_programs import ACTIVATIONS, LAYERS

# Who writes a layer otherwise, and why it is another program: numbers for which it gives others.
DIFFER = {
    "prelu": ({"torch"}, "of 0 torch gives 0 times the slope: -0.0, or NaN, for some slopes"),
    "threshold": ({"onnx"}, "ONNX makes 0 of NaN, torch keeps it"),
    "hard shrink": ({"onnx"}, "ONNX makes 0 of NaN, torch keeps it"),
    "soft shrink": ({"onnx"}, "ONNX makes 0 of NaN, torch keeps it"),
    "mean of seven": ({"jax"}, "JAX divides by 7, the others multiply by its rounded inverse"),
    "standardised by jax.nn": ({"jax"}, "jax.nn.standardize takes the mean square less the square "
                                        "of the mean for the variance"),
}  # fmt: skip


@cache
def graphs_of(name: str) -> dict[str, Graph]:
    return dict(LAYERS[name].graphs())


def parties(name: str) -> list[set[str]]:
    """The frameworks, those together whose programs have one digest; the most of them first."""
    found: dict[str, set[str]] = {}
    for framework, graph in graphs_of(name).items():
        found.setdefault(digest(normal_form(graph)), set()).add(framework)
    return sorted(found.values(), key=lambda each: (-len(each), min(each)))


@pytest.mark.wide(18)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_one_digest(name: str) -> None:
    """Or differs as declared: a gap that closes must be struck out of `DIFFER`."""
    most, *others = parties(name)
    assert len(most) + sum(map(len, others)) > 1, "one framework alone shows nothing"
    apart = set().union(*others)
    if name not in DIFFER:
        assert apart == set()
        return
    who, _ = DIFFER[name]
    assert who in (apart, most), f"{name} no longer differs for {who}"
    assert apart


def test_enough_layers_are_held_together() -> None:
    assert len(LAYERS) - len(DIFFER) >= 40 and set(DIFFER) <= set(LAYERS)


def special(graph: Graph) -> list[np.ndarray]:
    """Numbers that forms of a layer could treat differently."""
    row = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-30, 7.25, -3.5], np.float32)
    return [np.resize(row, kind.shape) for kind in graph.input_types]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_same_of_any_number(name: str) -> None:
    """What differs in name only differs in no number; what is declared differs in one."""
    results = [evaluate(graph, special(graph))[0] for graph in graphs_of(name).values()]
    alike = [np.allclose(each, results[0], equal_nan=True) for each in results]
    signs = [(np.signbit(each) == np.signbit(results[0])).all() for each in results]
    if name in ("threshold", "hard shrink", "soft shrink"):
        assert not all(alike)
    else:
        assert all(alike)
    if name == "leaky relu":
        assert all(signs)


@pytest.mark.parametrize("slope", [0.25, 0.0])
def test_a_leaky_relu_keeps_the_sign_of_zero(slope: float) -> None:
    w = GraphWriter()
    graph = w.build([leaky_relu(w, w.input("x", (3,), DType.F32), slope)])
    (found,) = evaluate(graph, [np.array([0.0, -0.0, -4.0], np.float32)])
    np.testing.assert_array_equal(found, [0.0, -0.0, -4.0 * slope])
    assert list(np.signbit(found)[:2]) == [False, True]


# --- the table of names ---------------------------------------------------------------------------


def test_every_name_has_its_rule() -> None:
    assert len(NAMES) == len({(row.function, row.kind, row.jax, row.aten) for row in NAMES})
    for row in NAMES:
        assert not row.jax or row.jax in JAX_RULES
        assert not row.onnx or ("", row.onnx, row.since) in ONNX_RULES
        assert set(row.aten) <= set(TORCH_RULES)
        assert not row.array or getattr(xp_elementwise, row.array).__name__ == row.array
        assert not (row.is_op and row.onnx) or row.function in WRITERS


def test_names_are_those_of_the_frameworks() -> None:
    """A name that a framework does not have would be a rule that nothing asks for."""
    import onnx
    import torch

    for row in NAMES:
        for overload in row.aten:
            _, base, kind = overload.split(".")
            assert kind in getattr(torch.ops.aten, base).overloads(), overload
        if row.onnx:
            schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == row.onnx]
            assert any(s.domain == "" and s.since_version >= row.since for s in schemas), row.onnx


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_used(kind: Kind) -> None:
    assert any(row.kind is kind for row in NAMES)
