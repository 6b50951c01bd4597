"""What must hold of a row of the op table, for each of its samples."""

from __future__ import annotations

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Load, Sym
from autofuse.ops.spec import OpSpec, Sample
from tests.support.expr_eval import assert_close, call_of, draw, eval_body, reference_of


def has_body(spec: OpSpec, sample: Sample) -> bool:
    """A constant of several elements is a buffer: its body is never asked for."""
    if spec.name == "constant":
        return bool(call_of(spec, sample).out.size == 1)
    return spec.body is not None or spec.fold is not None


def has_literal_body(spec: OpSpec, sample: Sample) -> bool:
    """Folding of indices does not depend on the dtype: of samples that differ in it, one."""
    known = not sample.ins or sample.ins[0].dtype is DType.F32
    return known and spec.body is not None and has_body(spec, sample)


def has_axes(spec: OpSpec, sample: Sample) -> bool:
    """Whether the row has an axis map, and operands that it speaks of."""
    return spec.axes is not None and bool(sample.ins)


def passes_axes(spec: OpSpec, sample: Sample) -> bool:
    """Whether the axis map passes an axis of several elements through to a body."""
    if spec.axes is None or spec.body is None or not has_body(spec, sample):
        return False
    call = call_of(spec, sample)
    return any(
        axis is not None and call.out.shape[out_axis] > 1
        for axes in spec.axes(call)
        for out_axis, axis in enumerate(axes)
    )


def check_types(spec: OpSpec, sample: Sample) -> None:
    """The reference gives the types that are inferred."""
    call = call_of(spec, sample)
    results = reference_of(spec, call, draw(sample))
    assert [r.shape for r in results] == [t.shape for t in call.outs]
    assert [r.dtype for r in results] == [t.dtype.reference for t in call.outs]
    assert spec.flops(call) >= 0


def check_body(spec: OpSpec, sample: Sample, literal: bool = False) -> None:
    """The body agrees with the reference; `literal` at indices that are numbers."""
    call, arrays = call_of(spec, sample), draw(sample)
    wanted = reference_of(spec, call, arrays)
    results = eval_body(spec, call, arrays, literal=literal)
    for found, want, out in zip(results, wanted, call.outs, strict=True):
        assert_close(found, want, out.dtype)


def check_axes(spec: OpSpec, sample: Sample) -> None:
    """An axis that the map passes through has the same extent."""
    assert spec.axes is not None
    call = call_of(spec, sample)
    for kind, axes in zip(call.ins, spec.axes(call), strict=True):
        assert len(axes) == call.out.rank
        for out_axis, axis in enumerate(axes):
            assert axis is None or (0 <= axis < kind.rank), (kind, axes)
            if axis is not None and spec.name != "concat":
                assert kind.shape[axis] == call.out.shape[out_axis]


class _Asked:
    """A pull that keeps the indices it is asked for."""

    def __init__(self, ins: tuple) -> None:
        self.ins, self.asked = ins, []

    def __call__(self, operand: int, index: Index, /) -> Expr:
        self.asked.append((operand, index))
        kind = self.ins[operand]
        return Load(f"in{operand}", ix.linearize(index, kind.shape), kind.dtype.compute)

    def let(self, value: Expr, /) -> Expr:
        return value


def check_pulls(spec: OpSpec, sample: Sample) -> None:
    """An axis that the map passes through is pulled at the identical index."""
    assert spec.axes is not None and spec.body is not None
    call = call_of(spec, sample)
    maps = spec.axes(call)
    index = tuple(Sym(f"i{a}", DType.I64, n) for a, n in enumerate(call.out.shape))
    pull = _Asked(call.ins)
    spec.body(call, index, pull)
    assert pull.asked
    for operand, where in pull.asked:
        for out_axis, axis in enumerate(maps[operand]):
            if axis is not None and call.out.shape[out_axis] > 1:
                assert where[axis] == index[out_axis]
