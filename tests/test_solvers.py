"""Factorisations as ops: by LAPACK on a CPU, refused by name where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autofuse
from autofuse import faults
from autofuse.backends.cpu import lapack
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.library import load
from autofuse.baselines import BASELINES
from autofuse.graph.noise import Noise
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.text.dialects import CUDA, C
from autofuse.ops.dtypes import DType
from autofuse.ops.solvers import KINDS, direction, parts_of
from autofuse.ops.types import GraphError, TensorType
from autofuse.plan.fusion.legality import check_group, check_plan
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig, Refusal
from autofuse.tuning.serve.served import BY_REFERENCE
from search_spaces import CpuLaunchSpace
from tests.support.batching import Case, build

RNG = np.random.default_rng(11)
Shape = tuple[int, ...]
FLAGS: dict[str, list[dict[str, bool]]] = {
    "eigh": [{"lower": lower} for lower in (True, False)],
    "triangular_solve": [
        {"lower": lower, "unit": unit} for lower in (True, False) for unit in (True, False)
    ],
}
SHAPES: dict[str, list[list[Shape]]] = {
    "cholesky": [[(1, 1)], [(9, 9)], [(3, 33, 33)]],
    "eigh": [[(1, 1)], [(9, 9)], [(3, 33, 33)]],
    "orgqr": [[(9, 7), (7,)], [(3, 40, 33), (3, 20)]],
    "triangular_solve": [[(9, 9), (9, 3)], [(2, 40, 40), (2, 40, 7)]],
}
ANY = [[(9, 7)], [(1, 5)], [(3, 40, 33)], [(3, 33, 40)]]


def one(op: str, shapes: list[Shape], dtype: DType, **flags: bool) -> Graph:
    """One op of inputs."""
    w = GraphWriter()
    return w.build([w.op(op, *(w.input(f"x{k}", s, dtype) for k, s in enumerate(shapes)), **flags)])


def alone(graph: Graph, threads: int = 2) -> Candidate:
    (value,) = graph.outputs
    group = FusionGroup((value.node,), (value,))
    return Candidate(FusionPlan((group,)), (LaunchConfig.of(threads=threads),))


def drawn(op: str, shapes: list[Shape]) -> list[np.ndarray]:
    a = RNG.standard_normal(shapes[0])
    if op in ("cholesky", "eigh"):
        return [a @ a.swapaxes(-1, -2) + 0.1 * np.eye(a.shape[-1])]
    if op == "orgqr":
        packed, taus = np.linalg.qr(a, mode="raw")
        return [packed.swapaxes(-1, -2), taus[..., : shapes[1][-1]]]
    if op == "triangular_solve":
        a = a / a.shape[-1] + 2 * np.eye(a.shape[-1])
    return [a, *(RNG.standard_normal(s) for s in shapes[1:])]


@pytest.mark.wide(6)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", KINDS)
def test_lapack_is_the_reference(op: str, dtype: DType) -> None:
    cases = [
        (Case(graph, alone(graph, threads), ""), [a.astype(dtype.numpy) for a in drawn(op, shapes)])
        for shapes in SHAPES.get(op, ANY)
        for flags in FLAGS.get(op, [{}])
        for graph in [one(op, shapes, dtype, **flags)]
        for threads in (1, 2)
    ]
    for (case, inputs), made in zip(cases, build([case for case, _ in cases]), strict=True):
        (wanted,) = evaluate(case.graph, inputs)
        with load(made) as plan:
            (found,) = plan.run(inputs)
        assert found.dtype == dtype.numpy
        size = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            found, wanted, atol=(2e-5 if dtype is DType.F32 else 1e-12) * size
        )


def split(op: str, made: np.ndarray, shape: Shape) -> list[np.ndarray]:
    """The parts of a result."""
    parts, at, found = parts_of(op, TensorType(shape, DType.F64)), 0, []
    for part in parts:
        size = int(np.prod(part))
        found.append(made[..., at : at + size].reshape(*made.shape[:-1], *part))
        at += size
    return found


def test_the_parts_make_the_matrix_again() -> None:
    """The reference itself, against what defines each factorisation."""
    a = RNG.standard_normal((2, 9, 6))
    s = a.swapaxes(1, 2) @ a
    values, vectors = split(
        "eigh", evaluate(one("eigh", [s.shape], DType.F64, lower=True), [s])[0], s.shape
    )
    np.testing.assert_allclose(vectors * values[:, None] @ vectors.swapaxes(1, 2), s, atol=1e-12)
    assert (np.einsum("bij,i->bj", vectors, direction(6)) > 0).all()
    values, u, vt = split("svd", evaluate(one("svd", [a.shape], DType.F64), [a])[0], a.shape)
    np.testing.assert_allclose(u * values[:, None] @ vt, a, atol=1e-12)
    assert (np.einsum("bij,i->bj", u, direction(9)) > 0).all()
    (root,) = evaluate(one("cholesky", [s.shape], DType.F64), [s])
    np.testing.assert_allclose(root @ root.swapaxes(1, 2), s, atol=1e-12)
    packed, pivots = split("lu", evaluate(one("lu", [a.shape], DType.F64), [a])[0], a.shape)
    lower = np.tril(packed, -1)[..., :6] + np.eye(9, 6)
    rows = np.tile(np.arange(9), (2, 1))
    for b, k in np.ndindex(2, 6):
        other = int(pivots[b, k])
        rows[b, [k, other]] = rows[b, [other, k]]
    exchanged = np.take_along_axis(a, rows[..., None], 1)
    np.testing.assert_allclose(lower @ np.triu(packed)[:, :6], exchanged, atol=1e-12)
    packed, taus = split("geqrf", evaluate(one("geqrf", [a.shape], DType.F64), [a])[0], a.shape)
    (q,) = evaluate(one("orgqr", [a.shape, (2, 6)], DType.F64), [packed, taus])
    np.testing.assert_allclose(q @ np.triu(packed)[:, :6], a, atol=1e-12)


def test_what_fails_is_nan_and_nothing_else() -> None:
    a = np.stack([np.eye(12), -np.eye(12), 4 * np.eye(12)]).astype(np.float32)
    graph = one("cholesky", [a.shape], DType.F32)
    with load(build([Case(graph, alone(graph), "")])[0]) as plan:
        (found,) = plan.run([a])
    for made in (found, evaluate(graph, [a])[0]):
        assert np.isnan(made[1]).all()
        np.testing.assert_array_equal(made[[0, 2]], [np.eye(12), 2 * np.eye(12)])


def test_rounding_moves_results_as_far_as_the_condition_says() -> None:
    """Noise enters by the operands: of a solution with a bad matrix it is large."""
    good, bad = np.eye(9), np.eye(9)
    bad[8, 8], bad[8, :8], good[8, :8] = 1e-3, 1.0, 1.0
    graph = one("triangular_solve", [(9, 9), (9, 1)], DType.F32, lower=True, unit=False)
    moved = []
    for a in (good, bad):
        inputs = [a, np.ones((9, 1))]
        still = evaluate(graph, inputs)[0]
        moved.append(
            max(np.abs(evaluate(graph, inputs, Noise(k))[0] - still).max() for k in range(8))
        )
    assert 1e-8 < moved[0] < 1e-5 < moved[1] < 1e-2


def test_wrong_operands_are_refused() -> None:
    f32, i32 = DType.F32, DType.I32
    for op, shapes, dtype, flags, said in (
        ("cholesky", [(3, 4)], f32, {}, "not square"),
        ("cholesky", [(4,)], f32, {}, "no matrices"),
        ("lu", [(0, 4)], f32, {}, "no matrices"),
        ("lu", [(4, 4)], i32, {}, "dtype"),
        ("eigh", [(4, 4)], f32, {"lower": 1}, "not true or false"),
        ("triangular_solve", [(4, 4), (3, 1)], f32, {"lower": True, "unit": True}, "does not fit"),
        ("orgqr", [(4, 4), (2, 1)], f32, {}, "does not fit"),
    ):
        with pytest.raises(GraphError, match=said):
            one(op, shapes, dtype, **flags)


def among_others() -> Graph:
    w = GraphWriter()
    x = w.input("x", (2, 20, 20), DType.F32)
    made = w.op("eigh", w.map("tanh", x), lower=True)
    return w.build([w.mul(made, 2.0), w.reduce("reduce_sum", made, -1)])


def test_it_is_a_library_call_of_its_own_in_every_plan() -> None:
    graph = among_others()
    node = next(i for i, n in enumerate(graph.nodes) if n.op == "eigh")
    for name, rule in BASELINES.items():
        plan = rule(graph).plan
        check_plan(graph, plan)
        assert [g.nodes for g in plan.groups if node in g.nodes] == [(node,)], name
    refused = check_group(graph, (node - 1, node), (Value(node),))
    assert isinstance(refused, Refusal) and "library call" in str(refused)
    group = FusionGroup((node,), (Value(node),))
    launch = CpuLaunchSpace().default(graph, group)
    assert library_of(graph, group, launch, C) == "lapack"
    assert library_of(graph, group, LaunchConfig(), CUDA) == ""


def test_cuda_refuses_it_by_name_and_the_reference_serves() -> None:
    graph = one("cholesky", [(20, 20)], DType.F32)
    with pytest.raises(LoweringError, match="no library of this device does 'cholesky'"):
        cuda_program(graph, alone(graph))
    with faults.strict(False):
        plan = autofuse.compile(graph, device="cuda-emulated")
    assert plan.origin == BY_REFERENCE
    (found,) = plan(4 * np.eye(20, dtype=np.float32))
    np.testing.assert_array_equal(found, 2 * np.eye(20))


def test_without_lapack_a_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Any:
        raise KeyError("spotrf")

    lapack.lapack_table.cache_clear()
    monkeypatch.setattr(lapack, "exported", missing)
    assert lapack.lapack_address() == 0
    with pytest.raises(lapack.LapackMissing, match="need SciPy's LAPACK"):
        lapack.lapack_name()
    lapack.lapack_table.cache_clear()


def _cases() -> dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]]:
    a = RNG.standard_normal((2, 24, 24)).astype(np.float32)
    spd = a @ a.swapaxes(1, 2) / 24 + np.eye(24, dtype=np.float32)
    b = RNG.standard_normal((2, 24, 3)).astype(np.float32)
    wide = RNG.standard_normal((2, 20, 40)).astype(np.float32)
    return {
        "solve": (jnp.linalg.solve, (spd, b)),
        "cholesky": (jnp.linalg.cholesky, (spd,)),
        "logdet": (jnp.linalg.slogdet, (spd,)),
        "eigenvalues": (jnp.linalg.eigvalsh, (spd,)),
        "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), (wide,)),
        "qr": (jnp.linalg.qr, (wide,)),
        "whole of an svd": (lambda x: _again(*jnp.linalg.svd(x)), (wide,)),
        "gradient": (jax.grad(lambda x, y: jnp.linalg.solve(x, y).sum()), (spd, b)),
        "gradient of a root": (jax.grad(lambda x: jnp.log(jnp.linalg.cholesky(x).diagonal(
            axis1=1, axis2=2)).sum()), (spd,)),
    }  # fmt: skip


def _again(u: Any, s: Any, vt: Any) -> Any:
    return u[:, :, :20] * s[:, None] @ vt[:, :20]


CASES = _cases()


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", CASES)
def test_jax_programs(name: str) -> None:
    fn, args = CASES[name]
    own = autofuse.jax_jit(fn)
    for found, wanted in zip(
        jax.tree.leaves(own(*args)), jax.tree.leaves(jax.jit(fn)(*args)), strict=True
    ):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-3, atol=2e-4)
