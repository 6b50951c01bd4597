"""Conversions that nothing is lost by, and back."""

from __future__ import annotations

from autofuse.ops.dtypes import DType
from autofuse.simplify.draft import Draft
from autofuse.simplify.patterns import WHOLE, Bindings, Identity, holes, ops, rewrite

# Bits of the whole numbers that a float has all of.
MANTISSA = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
# Each has every number of those it maps to.
_WIDER = {
    DType.F64: (DType.F32, DType.F16, DType.BF16),
    DType.F32: (DType.F16, DType.BF16),
}


def keeps(narrow: DType, wide: DType) -> bool:
    """Whether every number of `narrow` is one of `wide`."""
    if narrow is wide or narrow is DType.BOOL:
        return True
    if wide is DType.BOOL:
        return False
    if narrow.is_float:
        return narrow in _WIDER.get(wide, ())
    bits = 8 * narrow.itemsize - narrow.is_signed
    if wide.is_float:
        return bits <= MANTISSA[wide]
    room = 8 * wide.itemsize - wide.is_signed
    return bits <= room and (wide.is_signed or not narrow.is_signed)


def _there(draft: Draft, bound: Bindings) -> bool:
    """Whether the value already has the type that it is made into."""
    return draft.dtype(bound["x"]) is draft.dtype(bound[WHOLE])


def _keeps_all(draft: Draft, bound: Bindings) -> bool:
    """Whether the conversion in between loses nothing that the last one does not."""
    source, middle, target = (draft.dtype(bound[name]) for name in ("x", "between", WHOLE))
    if not keeps(source, middle):
        return False
    # Whole numbers wrap on their way to others, but a float in between saturates.
    saturates = middle.is_float and not source.is_float and target.is_int
    return not saturates or keeps(source, target)


(x,) = holes("x")
cast, bitcast = ops("cast bitcast")

rewrite(
    "casts", "cast-of-cast", "XLA SimplifyFPConversions, convert(convert(A)); LLVM InstCombine; "
    "Inductor pointless_convert",
    "A conversion to the own dtype is none; one to a dtype that has all the numbers makes no "
    "difference to the next.",
    Identity(cast(x), x, _there),
    Identity(cast(cast(x).named("between")), x,
             lambda draft, bound: _there(draft, bound) and _keeps_all(draft, bound)),
    Identity(cast(cast(x).named("between")), cast(x), _keeps_all),
)  # fmt: skip
rewrite(
    "casts", "bitcast-of-bitcast", "XLA AlgebraicSimplifier bitcast-convert(bitcast-convert(A))",
    "The same bits, whatever they were called in between.",
    Identity(bitcast(x), x, _there),
    Identity(bitcast(bitcast(x)), x, _there),
    Identity(bitcast(bitcast(x)), bitcast(x)),
)  # fmt: skip
