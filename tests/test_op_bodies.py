"""Every row of the op table against its own reference: types, values, axis maps, costs."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Load, Sym
from autofuse.ops.spec import Family, OpSpec, Sample, all_specs, register
from tests.support.expr_eval import assert_close, call_of, draw, eval_body, reference_of

CASES = [
    pytest.param(spec, sample, id=f"{spec.name}-{n}-{','.join(map(str, sample.ins))}")
    for spec in all_specs()
    for n, sample in enumerate(spec.samples())
]


def _has_body(spec: OpSpec, sample: Sample) -> bool:
    """A constant of several elements is a buffer: its body is never asked for."""
    if spec.name == "constant":
        return bool(call_of(spec, sample).out.size == 1)
    return spec.body is not None or spec.fold is not None


WITH_BODY = [case for case in CASES if _has_body(*case.values)]


@pytest.mark.parametrize(("spec", "sample"), CASES)
def test_reference_gives_the_inferred_types(spec: OpSpec, sample: Sample) -> None:
    call = call_of(spec, sample)
    results = reference_of(spec, call, draw(sample))
    assert [r.shape for r in results] == [t.shape for t in call.outs]
    assert [r.dtype for r in results] == [t.dtype.reference for t in call.outs]
    assert spec.flops(call) >= 0


@pytest.mark.parametrize(("spec", "sample"), WITH_BODY)
def test_body_agrees_with_reference(spec: OpSpec, sample: Sample) -> None:
    call, arrays = call_of(spec, sample), draw(sample)
    wanted = reference_of(spec, call, arrays)
    for found, want, out in zip(eval_body(spec, call, arrays), wanted, call.outs, strict=True):
        assert_close(found, want, out.dtype)


@pytest.mark.parametrize(("spec", "sample"), WITH_BODY)
def test_body_agrees_at_literal_indices(spec: OpSpec, sample: Sample) -> None:
    call, arrays = call_of(spec, sample), draw(sample)
    if spec.body is None or (call.ins[:1] and call.ins[0].dtype is not DType.F32):
        return  # folding of indices does not depend on the dtype
    wanted = reference_of(spec, call, arrays)
    results = eval_body(spec, call, arrays, literal=True)
    for found, want, out in zip(results, wanted, call.outs, strict=True):
        assert_close(found, want, out.dtype)


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


@pytest.mark.parametrize(("spec", "sample"), CASES)
def test_axis_map_holds_for_every_pull(spec: OpSpec, sample: Sample) -> None:
    """An axis the map passes through is pulled at the identical index, and has the same extent."""
    if spec.axes is None:
        assert spec.family in (Family.SOURCE, Family.CONTROL)
        return
    call = call_of(spec, sample)
    maps = spec.axes(call)
    assert len(maps) == len(call.ins)
    index = tuple(Sym(f"i{a}", DType.I64, n) for a, n in enumerate(call.out.shape))
    for kind, axes in zip(call.ins, maps, strict=True):
        assert len(axes) == call.out.rank
        for out_axis, axis in enumerate(axes):
            assert axis is None or (0 <= axis < kind.rank), (kind, axes)
            if axis is not None and spec.name != "concat":
                assert kind.shape[axis] == call.out.shape[out_axis]
    if spec.body is None or not _has_body(spec, sample):
        return
    pull = _Asked(call.ins)
    spec.body(call, index, pull)
    for operand, where in pull.asked:
        for out_axis, axis in enumerate(maps[operand]):
            if axis is not None and call.out.shape[out_axis] > 1:
                assert where[axis] == index[out_axis]


def test_every_row_has_small_samples() -> None:
    for spec in all_specs():
        # Inputs have nothing to sample, and loops need graphs.
        assert spec.samples() or spec.name in ("input", "loop", "while"), spec.name
        for sample in spec.samples():
            assert all(np.prod(t.shape) < 5000 for t in sample.ins), spec.name


def test_a_name_is_registered_once() -> None:
    spec = all_specs()[0]
    with pytest.raises(ValueError, match="registered twice"):
        register(spec)
