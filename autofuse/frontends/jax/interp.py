"""Walks a jaxpr and writes its ops: calls inlined, scans as counted loops, whiles as loops."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.branch import taken_branch
from autofuse.frontends.jax.checks import only_raises, poisoned
from autofuse.frontends.jax.complex import COMPLEX_RULES
from autofuse.frontends.jax.foreign import as_its_library_computes_it, is_foreign
from autofuse.frontends.jax.index import INDEX_RULES
from autofuse.frontends.jax.linalg import LINALG_RULES
from autofuse.frontends.jax.loop import ScanLoop, UntilLoop, counts_up, folded, unchanged
from autofuse.frontends.jax.order import ORDER_RULES
from autofuse.frontends.jax.random import RANDOM_RULES
from autofuse.frontends.jax.rules import COMPUTE_RULES, SHAPE_RULES, same
from autofuse.frontends.jax.scatter import SCATTER_RULES
from autofuse.frontends.jax.side_by_side import all_at_once
from autofuse.frontends.jax.special import OWN, SPECIAL_RULES, as_jax_writes_it
from autofuse.frontends.jax.types import (
    ComplexArray,
    Item,
    PairArray,
    PrimitiveRule,
    as_graph,
    dtype_of,
    is_complex,
    is_key,
    jax_module,
    part_dtype,
    values_of,
)
from autofuse.frontends.jax.windows import WINDOW_RULES
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

RULES: dict[str, PrimitiveRule] = (
    COMPUTE_RULES
    | SHAPE_RULES
    | INDEX_RULES
    | LINALG_RULES
    | ORDER_RULES
    | RANDOM_RULES
    | SCATTER_RULES
    | SPECIAL_RULES
    | WINDOW_RULES
)
# Primitives that only move or add elements treat both words of a key, or parts of a number, alike.
_PAIRWISE = {
    *SHAPE_RULES, "dynamic_slice", "dynamic_update_slice", "gather", "select_n", "scatter",
    "scatter-add", "scatter-sub",
} | {name for name, rule in COMPUTE_RULES.items() if rule is same}  # fmt: skip
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass
class Walker:
    """Writes with `w`; `inside` holds the equations being expanded, outermost first."""

    w: GraphWriter
    inside: list[Any] = field(default_factory=list)

    def run(self, jaxpr: Any, consts: Sequence[Item], args: Sequence[Item]) -> list[Item]:
        """Results of `jaxpr` (open); raises FrontendError naming a primitive without a rule."""
        env: dict[Any, Item] = {}
        env.update(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for eqn, live in _needed(jaxpr):
            items = [self._read(env, atom) for atom in eqn.invars]
            results = self._apply(eqn, live, items)
            env.update(zip(eqn.outvars, results, strict=True))
        return [self._read(env, atom) for atom in jaxpr.outvars]

    def closed(self, closed: Any, args: Sequence[Item]) -> list[Item]:
        """Results of a jaxpr that brings its constants, or has none."""
        if not hasattr(closed, "consts"):
            return self.run(closed, (), args)
        return self.run(closed.jaxpr, [self.constant(c) for c in closed.consts], args)

    def constant(self, value: Any) -> Item:
        """A concrete jax or NumPy array (or array of typed keys)."""
        if hasattr(value, "dtype") and is_complex(value):
            return self._complex(np.asarray(value), value.dtype)
        if hasattr(value, "dtype") and is_key(value):
            words = self.w.constant(np.asarray(jax_module().random.key_data(value)))
            return _first(RANDOM_RULES["random_wrap"](self.w, None, words))
        return self.w.constant(np.asarray(value), dtype_of(np.asarray(value).dtype))

    def on(self, w: GraphWriter) -> Walker:
        """A walker for the body of a loop in this graph."""
        return Walker(w, list(self.inside))

    def _complex(self, value: np.ndarray, dtype: Any) -> Item:
        kind = part_dtype(dtype)
        return ComplexArray(*(self.w.constant(v, kind) for v in (value.real, value.imag)))

    def _read(self, env: dict[Any, Item], atom: Any) -> Item:
        if hasattr(atom, "val") and is_complex(atom.aval):
            return self._complex(np.asarray(atom.val), atom.aval.dtype)
        if hasattr(atom, "val"):
            return self.w.constant(np.asarray(atom.val), dtype_of(atom.aval.dtype))
        return env[atom]

    def _apply(self, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
        self.inside.append(eqn)
        name = eqn.primitive.name
        try:
            if name in CONTROL_RULES:
                return CONTROL_RULES[name](self, eqn, live, items)
            if name not in RULES and is_foreign(eqn.primitive):
                return as_its_library_computes_it(self, eqn, items)
            if name in _PAIRWISE and _any_pair(items):
                return self._pairwise(eqn, items)
            return _listed(_rule(eqn)(self.w, eqn, *items))
        except GraphError as error:
            if isinstance(error, FrontendError) and error.located:
                raise
            text = str(error)
            text = text if text == "is not supported" else f"cannot become a graph: {text}"
            message = f"jax primitive '{name}' {text} ({self._line()})"
            raise FrontendError(message, located=True) from error
        finally:
            self.inside.pop()

    def _pairwise(self, eqn: Any, items: list[Item]) -> list[Item]:
        """A rule applied to the first words of all keys, or real parts, then to the others."""
        rule = RULES[eqn.primitive.name]
        words = []
        for w in (0, 1):
            chosen = ((i.k0, i.k1)[w] if isinstance(i, PairArray) else i for i in items)
            words.append(_listed(rule(self.w, eqn, *chosen)))
        pairs = zip(eqn.outvars, *words, strict=True)
        kind = next(type(item) for item in items if isinstance(item, PairArray))
        return [kind(a, b) if is_key(v.aval) or is_complex(v.aval) else a for v, a, b in pairs]

    def _line(self) -> str:
        """file.py:12 of the innermost equation that stems from code outside jax."""
        for eqn in reversed(self.inside):
            found = user_line(eqn)
            if found:
                return found
        return "line unknown"


def _first(items: Item | tuple[Item, ...]) -> Item:
    return _listed(items)[0]


def _any_pair(items: Sequence[Item]) -> bool:
    return any(isinstance(item, PairArray) for item in items)


def _rule(eqn: Any) -> PrimitiveRule:
    name = eqn.primitive.name
    if any(is_complex(v.aval) for v in (*eqn.invars, *eqn.outvars)):
        if name not in COMPLEX_RULES:
            raise FrontendError("is not supported for complex numbers")
        return COMPLEX_RULES[name]
    if name not in RULES:
        raise FrontendError("is not supported")
    return RULES[name]


def _listed(result: Item | Sequence[Item]) -> list[Item]:
    return [result] if isinstance(result, Value | PairArray) else list(result)


def user_line(eqn: Any) -> str | None:
    """Where the user's code made an equation: the innermost frame outside jax and this package."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return None
    ours = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
    theirs = os.path.dirname(jax_module().__file__)
    for frame in traceback.frames:
        path = frame.file_name
        hidden = path.startswith((ours, theirs + os.sep, theirs + "lib" + os.sep, "<"))
        if not hidden:
            return f"{os.path.basename(path)}:{frame.line_num}"
    return None


def _needed(jaxpr: Any) -> list[tuple[Any, tuple[bool, ...]]]:
    """Equations whose results (or effects) matter, each with which of its results do."""
    wanted = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    found = []
    for eqn in reversed(jaxpr.eqns):
        live = tuple(v in wanted for v in eqn.outvars)
        if any(live) or eqn.effects:
            found.append((eqn, live))
            wanted.update(v for v in eqn.invars if not hasattr(v, "val"))
    return found[::-1]


# Control flow: rule(walker, eqn, which results are live, operands)


def _inline(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    inner = next(eqn.params[key] for key in _INNER if key in eqn.params)
    return walker.closed(inner, items)


def _linear_solve(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    """Constants of four functions (the product, the solution, and both transposed), then the right
    sides: the solution is what is computed."""
    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first, count = lengths.matvec + lengths.vecmat, lengths.solve
    consts, sides = items[first : first + count], items[sum(lengths) :]
    return walker.closed(solve, [*consts, *sides])


def _scan(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    p = eqn.params
    consts, carries = _scan_parts(p)
    together = None if carries else all_at_once(eqn, consts)
    if together is not None:
        return walker.closed(together, items)
    loop = ScanLoop(
        p["jaxpr"],
        items[:consts],
        items[consts : consts + carries],
        items[consts + carries :],
        int(p["length"]),
        bool(p["reverse"]),
        tuple(live[carries:]),
    )
    return loop.emit(walker)


def _scan_parts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many of a scan's operands are constants of its body, and how many are carried."""
    if "ft_in" in params:  # since JAX 0.11
        consts, carries, _ = params["ft_in"].unpack()
        return len(consts), len(carries)
    return int(params["num_consts"]), int(params["num_carry"])


def _while(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    """One that counts a carried integer up to a known bound, as fori_loop makes, is a counted loop;
    of others data decide the end."""
    p = eqn.params
    tests, consts = int(p["cond_nconsts"]), int(p["body_nconsts"])
    test_items, init = items[:tests], items[tests + consts :]
    trip = _trip(walker.w, p["cond_jaxpr"], p["body_jaxpr"], test_items, init, consts)
    body_items = items[tests : tests + consts]
    if trip is not None:
        return ScanLoop(p["body_jaxpr"], body_items, init, [], trip, False, ()).emit(walker)
    return UntilLoop(p["cond_jaxpr"], test_items, p["body_jaxpr"], body_items, init).emit(walker)


def _compared(test: Any) -> Any:
    """The lesser and the greater side of a test that is one comparison."""
    eqns = test.eqns
    if len(eqns) != 1 or eqns[0].primitive.name not in ("lt", "gt"):
        return None
    if eqns[0].outvars != test.outvars:
        return None
    return eqns[0].invars if eqns[0].primitive.name == "lt" else eqns[0].invars[::-1]


def _trip(
    w: GraphWriter, test: Any, body: Any, test_items: list[Item], init: list[Item], consts: int
) -> int | None:
    """How often `carry < bound` holds when the body adds 1 to the carry; None if unclear."""
    sides = _compared(test.jaxpr)
    if sides is None:
        return None
    left, right = sides
    operands = list(test.jaxpr.invars)
    if hasattr(left, "val") or operands.index(left) < len(test_items):
        return None
    carry = operands.index(left) - len(test_items)
    first = _known(w, init[carry])
    if hasattr(right, "val"):
        last: int | None = int(right.val)
    else:
        at = operands.index(right)
        fixed = at < len(test_items) or unchanged(body.jaxpr, consts, at - len(test_items))
        last = _known(w, (*test_items, *init)[at]) if fixed else None
    if first is None or last is None or not counts_up(body.jaxpr, consts, carry):
        return None
    return max(0, last - first)


def _known(w: GraphWriter, item: Item) -> int | None:
    return w.known_int(item) if isinstance(item, Value) else None


def _cond(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    """The branch that is taken is computed, and no other."""
    branches, (which, *args) = eqn.params["branches"], items
    assert isinstance(which, Value)
    known = walker.w.known_int(which)
    if known is not None:
        return walker.closed(branches[min(max(known, 0), len(branches) - 1)], args)
    avals = [v.aval for v in eqn.outvars]
    checks = [only_raises(branch) for branch in branches]
    if len(branches) == 2 and any(checks) and not any(is_key(a) or is_complex(a) for a in avals):
        return _checked(walker, which, branches, int(checks[0]), args, avals)
    return taken_branch(walker, branches, which, args, avals, live)


def _checked(
    walker: Walker, which: Value, branches: Sequence[Any], other: int, args: list[Item],
    avals: Sequence[Any],
) -> list[Item]:  # fmt: skip
    """The branch that does not raise (`other`), and NaN where the one that does is taken."""
    text = "a check gives NaN where it would raise an exception: a plan cannot"
    warnings.warn(f"{text} ({walker._line()})", RuntimeWarning, stacklevel=2)
    w = walker.w
    first = w.map("not", which) if w.dtype(which) is DType.BOOL else w.map("le", which, 0)
    fails = w.map("not", first) if other == 0 else first
    good = [v for item in walker.closed(branches[other], args) for v in values_of(item)]
    return [w.select(fails, bad, x) for bad, x in zip(poisoned(w, avals), good, strict=True)]


def _told(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    """What only shows values is left out, which JAX allows (`jax.debug` may drop calls), and that
    is told: a plan has no way back to Python."""
    text = f"jax primitive '{eqn.primitive.name}' is left out: a plan shows nothing"
    warnings.warn(f"{text} ({walker._line()})", RuntimeWarning, stacklevel=2)
    return []


def _served(walker: Walker, eqn: Any, live: Sequence[bool], items: list[Item]) -> list[Item]:
    """What plans serve in a JAX program (`interop/jax/served.py`) is what it was made of."""
    served = eqn.params["served"]
    with as_graph():
        closed = jax_module().make_jaxpr(served.fn)(*served.takes)
    return walker.closed(closed, items)


_CALLS = (
    "checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "jit", "pjit", "remat", "remat2",
)  # fmt: skip
CONTROL_RULES: dict[str, Callable[..., list[Item]]] = {
    **dict.fromkeys(_CALLS, _inline),
    **dict.fromkeys(OWN, as_jax_writes_it),
    "autofuse_served": _served,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    **dict.fromkeys(("debug_callback", "debug_print"), _told),
    "reduce": folded,
    "scan": _scan,
    "while": _while,
}
