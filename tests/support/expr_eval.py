"""A NumPy evaluator of scalar expressions, and of op bodies and folds built from them.

Expressions are evaluated in their own dtypes, vectorised over all output elements, and checked to
be well typed on the way: this is what lowering may rely on. Every index a body pulls is checked
to be in range whether or not the value is selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import erf

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import BINARY_MATH, COMPARISONS, UNARY_MATH, Call, Expr, Lit, Load, Sym
from autofuse.ops.spec import Family, OpSpec, Sample
from autofuse.ops.types import OpCall, make_attrs

Env = dict[str, np.ndarray]
Arrays = tuple[np.ndarray, ...]
Values = list[np.ndarray]
BITWISE = ("and", "or", "xor", "shl", "shr")


def _int_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C division: truncates; anything over zero is zero here."""
    return ((a - _int_rem(a, b)) // np.where(b == 0, 1, b)).astype(a.dtype)


def _int_rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _mulhi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "rint": np.rint,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh,
    "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "erf": erf,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "pow": np.power,
    "atan2": np.arctan2, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "not": np.invert, "isnan": np.isnan, "isfinite": np.isfinite,
    "mulhi": _mulhi, "select": np.where,
}  # fmt: skip


def _check_types(e: Call) -> None:
    kinds = [a.dtype for a in e.args]
    if e.fn == "select":
        assert kinds[0] is DType.BOOL and kinds[1] is kinds[2] is e.dtype, e.fn
    elif e.fn in (*COMPARISONS, "isnan", "isfinite"):
        assert e.dtype is DType.BOOL and len(set(kinds)) == 1, (e.fn, kinds)
    elif e.fn not in ("cast", "bitcast"):
        assert {*kinds} == {e.dtype}, (e.fn, kinds, e.dtype)
    counts = {"select": 3, "mulhi": 2, **dict.fromkeys((*BINARY_MATH, *COMPARISONS), 2)}
    assert len(kinds) == counts.get(e.fn, 1), e.fn
    if e.fn in UNARY_MATH and e.fn not in ("neg", "abs"):
        assert e.dtype.is_float, (e.fn, e.dtype)
    if e.fn in BITWISE:
        assert not e.dtype.is_float, (e.fn, e.dtype)


def _apply(e: Call, args: Values) -> np.ndarray:
    _check_types(e)
    if e.fn == "cast":
        return args[0].astype(e.dtype.numpy)
    if e.fn == "bitcast":
        assert e.dtype.itemsize == e.args[0].dtype.itemsize
        return np.ascontiguousarray(args[0]).view(e.dtype.numpy)
    if e.fn in ("div", "rem"):
        exact = {"div": _int_div, "rem": _int_rem}
        real = {"div": np.divide, "rem": np.fmod}
        return (real if e.dtype.is_float else exact)[e.fn](*args)
    return np.asarray(_FUNCTIONS[e.fn](*args))


class Evaluator:
    """Evaluates expressions over `env`, arrays for variables and buffers, once per object."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.seen: dict[int, tuple[Expr, np.ndarray]] = {}

    def __call__(self, e: Expr) -> np.ndarray:
        if id(e) not in self.seen:
            with np.errstate(all="ignore"):
                value = np.atleast_1d(self._value(e))
            assert value.dtype == e.dtype.numpy, (e, value.dtype)
            self.seen[id(e)] = (e, value)
        return self.seen[id(e)][1]

    def _value(self, e: Expr) -> np.ndarray:
        match e:
            case Lit():
                return np.asarray(e.value, dtype=e.dtype.numpy)
            case Sym():
                value = self.env[e.name]
                if e.extent is not None:
                    assert value.min() >= 0 and value.max() < e.extent, e
                return value
            case Load():
                return self.env[e.buffer][self(e.index)].astype(e.dtype.numpy)
        return _apply(e, [self(a) for a in e.args])


class Loads:
    """A `Pull` that makes loads of buffers in0, in1, ... and keeps what it was asked for."""

    def __init__(self, call: OpCall) -> None:
        self.call = call
        self.asked: list[tuple[int, Index]] = []
        self.bound: list[tuple[str, Expr]] = []

    def __call__(self, operand: int, index: Index, /) -> Expr:
        kind = self.call.ins[operand]
        self.asked.append((operand, index))
        return Load(f"in{operand}", ix.linearize(index, kind.shape), kind.dtype.compute)

    def let(self, value: Expr, /) -> Expr:
        """A fresh variable, as bounded as the value."""
        name = f"t{len(self.bound)}"
        self.bound.append((name, value))
        known = ix.bounds(value) if value.dtype is DType.I64 else None
        return Sym(name, value.dtype, known[1] + 1 if known and known[0] >= 0 else None)


def _check_ranges(loads: Loads, evaluate: Evaluator) -> None:
    for operand, index in loads.asked:
        shape = loads.call.ins[operand].shape
        assert len(index) == len(shape)
        for i, extent in zip(index, shape, strict=True):
            at = evaluate(i)
            assert at.min() >= 0 and at.max() < extent, (operand, index, shape)


def _buffers(arrays: Arrays) -> Env:
    return {f"in{k}": np.ascontiguousarray(a).reshape(-1) for k, a in enumerate(arrays)}


def _grid(shape: tuple[int, ...]) -> tuple[Index, Env]:
    """Index variables over `shape` and their values at every element, row-major."""
    syms = tuple(Sym(f"i{a}", DType.I64, n) for a, n in enumerate(shape))
    points = np.indices(shape, dtype=np.int64).reshape(len(shape), math.prod(shape))
    return syms, {s.name: points[a] for a, s in enumerate(syms)}


def _body_at(spec: OpSpec, call: OpCall, arrays: Arrays, index: Index, points: Env) -> Values:
    assert spec.body is not None
    loads = Loads(call)
    results = spec.body(call, index, loads)
    assert len(results) == len(call.outs)
    evaluate = Evaluator({**_buffers(arrays), **points})
    for name, value in loads.bound:
        evaluate.env[name] = evaluate(value)
    _check_ranges(loads, evaluate)
    for result, out in zip(results, call.outs, strict=True):
        assert result.dtype is out.dtype.compute
    return [evaluate(r) for r in results]


def _whole_body(spec: OpSpec, call: OpCall, arrays: Arrays) -> Values:
    index, points = _grid(call.out.shape)
    found = _body_at(spec, call, arrays, index, points)
    return [np.broadcast_to(f, (call.out.size,)) for f in found]


def _each_element(spec: OpSpec, call: OpCall, arrays: Arrays) -> Values:
    """As _whole_body, one element at a time with literal indices, so that constants fold."""
    rows = [
        _body_at(spec, call, arrays, tuple(map(ix.lit, at)), {})
        for at in np.ndindex(call.out.shape)
    ]
    return [np.concatenate([row[k] for row in rows]) for k in range(len(call.outs))]


def _elements(spec: OpSpec, call: OpCall) -> Iterator[tuple[Loads, Expr, int]]:
    """What each output folds: the loads, the element and its position, in order."""
    index, _ = _grid(call.out.shape)
    if spec.over is not None:
        for position, at in enumerate(np.ndindex(spec.over.extents(call))):
            loads = Loads(call)
            yield loads, spec.over.term(call, index, tuple(map(ix.lit, at)), loads), position
        return
    axes = reduced_axes(call)
    for position, at in enumerate(np.ndindex(tuple(call.ins[0].shape[a] for a in axes))):
        loads, kept = Loads(call), iter(index)
        if spec.family is Family.SCAN:
            full = tuple(ix.lit(at[0]) if a in axes else i for a, i in enumerate(index))
        else:
            full = tuple(
                ix.lit(at[axes.index(a)]) if a in axes else next(kept)
                for a in range(call.ins[0].rank)
            )
        yield loads, loads(0, full), position


def _combine(spec: OpSpec, a: Values, b: Values, kinds: list[DType]) -> Values:
    assert spec.fold is not None
    left = tuple(Sym(f"a{k}", d) for k, d in enumerate(kinds))
    right = tuple(Sym(f"b{k}", d) for k, d in enumerate(kinds))
    env = {f"a{k}": v for k, v in enumerate(a)} | {f"b{k}": v for k, v in enumerate(b)}
    results = spec.fold.combine(left, right)
    assert [r.dtype for r in results] == kinds
    evaluate = Evaluator(env)
    return [evaluate(r) for r in results]


def _fold(spec: OpSpec, call: OpCall, arrays: Arrays) -> Values:
    """Folds the odd and the even positions apart, then joins them: any order must do."""
    assert spec.fold is not None
    _, points = _grid(call.out.shape)
    start = spec.fold.init(call)
    kinds = [e.dtype for e in start]
    halves = [[Evaluator({})(e) for e in start] for _ in range(2)]
    steps: Values = []
    scan = spec.family is Family.SCAN
    for loads, element, position in _elements(spec, call):
        evaluate = Evaluator({**_buffers(arrays), **points})
        lifted = spec.fold.lift(call, element, ix.lit(position))
        assert [e.dtype for e in lifted] == kinds
        _check_ranges(loads, evaluate)
        half = 0 if scan else (position + 1) % 2
        halves[half] = _combine(spec, halves[half], [evaluate(e) for e in lifted], kinds)
        steps.append(halves[half][0])
    joined = halves[0] if scan else _combine(spec, halves[0], halves[1], kinds)
    if scan:
        at = points[f"i{call['axis']}"]
        joined = [np.choose(at, [np.broadcast_to(s, at.shape) for s in steps])]
    accs = tuple(Sym(f"a{k}", d) for k, d in enumerate(kinds))
    result = spec.fold.finish(call, accs)
    assert result.dtype is call.out.dtype.compute
    found = Evaluator({f"a{k}": v for k, v in enumerate(joined)})(result)
    return [np.broadcast_to(found, (call.out.size,))]


def eval_body(spec: OpSpec, call: OpCall, arrays: Arrays, literal: bool = False) -> Values:
    """The op's outputs, in their storage dtypes, computed from its body or fold.

    `arrays` are in the storage dtypes of `call.ins`; `literal` evaluates a body at literal indices,
    element by element, in place of symbolic ones.
    """
    if spec.body is not None:
        flat = (_each_element if literal else _whole_body)(spec, call, arrays)
    else:
        flat = _fold(spec, call, arrays)
    pairs = zip(flat, call.outs, strict=True)
    return [f.astype(t.dtype.numpy).reshape(t.shape) for f, t in pairs]


def call_of(spec: OpSpec, sample: Sample) -> OpCall:
    """The sample as a call with inferred outputs."""
    call = OpCall(make_attrs(sample.attrs), sample.ins)
    return OpCall(call.attrs, call.ins, spec.infer(call))


def draw(sample: Sample, seed: int = 0) -> Arrays:
    """Operands in their storage dtypes, drawn from the sample's range."""
    rng = np.random.default_rng(seed)
    found = []
    for kind in sample.ins:
        if kind.dtype.is_float:
            values = rng.uniform(sample.low, sample.high, kind.shape)
        elif kind.dtype is DType.BOOL:
            values = rng.random(kind.shape) < 0.5
        else:
            limits = np.iinfo(kind.dtype.numpy)
            low, high = max(int(sample.low), limits.min), min(int(sample.high), limits.max)
            values = rng.integers(min(low, high), high, kind.shape, endpoint=True)
        found.append(np.asarray(values).astype(kind.dtype.numpy))
    return tuple(found)


def reference_of(spec: OpSpec, call: OpCall, arrays: Arrays) -> Arrays:
    """The op's reference on `arrays`, floats widened to float64."""
    kinds = zip(arrays, call.ins, strict=True)
    with np.errstate(all="ignore"):
        return spec.reference(tuple(a.astype(t.dtype.reference) for a, t in kinds), call)


def assert_close(found: np.ndarray, wanted: np.ndarray, dtype: DType, ulps: float = 64) -> None:
    """Exact for integers and bools; floats within `ulps` of the largest finite magnitude."""
    assert found.shape == wanted.shape
    if not dtype.is_float:
        assert wanted.dtype == dtype.numpy
        np.testing.assert_array_equal(found, wanted)
        return
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=ulps * dtype.eps, atol=ulps * dtype.eps * scale
    )
