"""Rules for the primitives of jax.lax.linalg on real numbers: loops over columns."""

from __future__ import annotations

from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import PrimitiveRule
from autofuse.graph.composites import eigen, linalg
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter


def _whole(params: Any) -> None:
    """Raises FrontendError where only some of the values are asked for."""
    if params.get("subset_by_index") is not None:
        raise FrontendError("only all values are computed, not a subset")


def _cholesky(w: GraphWriter, eqn: Any, a: Value) -> Value:
    """The primitive leaves the other triangle as it was; what calls it takes that away."""
    rows, columns = linalg.positions(w, w.shape(a))
    return w.select(w.map("ge", rows, columns), linalg.cholesky(w, a), a)


def _triangular_solve(w: GraphWriter, eqn: Any, a: Value, b: Value) -> Value:
    """x of a x = b, or of x a = b, which is a^T x^T = b^T."""
    p = eqn.params
    left, lower, turned = bool(p["left_side"]), bool(p["lower"]), bool(p["transpose_a"])
    if turned == left:
        a, lower = linalg.swapped(w, a), not lower
    x = linalg.triangular_solve(
        w, a, b if left else linalg.swapped(w, b), lower, bool(p["unit_diagonal"])
    )
    return x if left else linalg.swapped(w, x)


def _lu(w: GraphWriter, eqn: Any, a: Value) -> tuple[Value, ...]:
    return linalg.lu(w, a)


def _permutation(w: GraphWriter, eqn: Any, pivots: Value) -> Value:
    return linalg.permutation(w, pivots, int(eqn.params["permutation_size"]))


def _qr(w: GraphWriter, eqn: Any, a: Value) -> tuple[Value, ...]:
    if eqn.params.get("pivoting"):
        raise FrontendError("columns are not exchanged: pivoting is not supported")
    return linalg.qr(w, a, bool(eqn.params["full_matrices"]))


def _geqrf(w: GraphWriter, eqn: Any, a: Value) -> tuple[Value, ...]:
    return linalg.geqrf(w, a)


def _householder_product(w: GraphWriter, eqn: Any, a: Value, taus: Value) -> Value:
    return linalg.householder_product(w, a, taus)


def _eigh(w: GraphWriter, eqn: Any, a: Value) -> tuple[Value, ...]:
    """jax has the vectors first."""
    _whole(eqn.params)
    return eigen.eigh(w, a, bool(eqn.params["lower"]))[::-1]


def _svd(w: GraphWriter, eqn: Any, a: Value) -> tuple[Value, ...]:
    _whole(eqn.params)
    if not eqn.params["compute_uv"]:
        return (eigen.singular_values(w, a),)
    return eigen.svd(w, a, bool(eqn.params["full_matrices"]))


def _tridiagonal_solve(w: GraphWriter, eqn: Any, *operands: Value) -> Value:
    return linalg.tridiagonal_solve(w, *operands)


LINALG_RULES: dict[str, PrimitiveRule] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "geqrf": _geqrf,
    "householder_product": _householder_product,
    "lu": _lu,
    "lu_pivots_to_permutation": _permutation,
    "qr": _qr,
    "svd": _svd,
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
}
