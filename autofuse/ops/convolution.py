"""conv: convolution (as networks have it: no turning round of the kernel) over 1 to 3 axes.

Every layout is one of the attributes, which are those of XLA: `lhs_axes` names the axes of the
image by role (batch, feature, then each spatial axis), `rhs_axes` those of the kernel (out feature,
in feature, spatial), `out_axes` those of the result (batch, out feature, spatial). So no layout
needs a transpose. Per spatial axis there are `stride`, `low` and `high` (padding with zeros; a
negative number cuts), `lhs_dilation` (holes between elements of the image: a transposed
convolution) and `rhs_dilation`. `groups` splits features, `batch_groups` the batch of the image
and the out features, as gradients of grouped convolutions need it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autofuse.ops import checks
from autofuse.ops import index as ix
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.library_forms import StridedConv, StridedWindow
from autofuse.ops.pull import Index, Pull
from autofuse.ops.reduction import SUM, number
from autofuse.ops.scalar import Expr, Lit, call
from autofuse.ops.sliding import Sliding, census, check_sliding, spread_out
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register, sampled
from autofuse.ops.terms import Factors, FoldOver, OutputRoles
from autofuse.ops.types import GraphError, OpCall, TensorType
from autofuse.ops.views import View, row_major

MOST_SPATIAL = 3
# Bytes of windows that the reference lays out at a time.
PART_BYTES = 1 << 26
Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvShape:
    """A convolution by roles. `spatial` has the windows along each spatial axis; a group makes
    `outs` of the out features from `ins` features of `batch` images."""

    lhs_axes: Shape
    rhs_axes: Shape
    out_axes: Shape
    spatial: tuple[Sliding, ...]
    groups: int
    batch_groups: int
    batch: int
    ins: int
    outs: int

    @property
    def depthwise(self) -> bool:
        """Whether out feature c is made from feature c of the image alone."""
        return self.groups > 1 and self.ins == self.outs == 1


def conv_shape(c: OpCall) -> ConvShape:
    """The roles and extents of a checked conv."""
    lhs, rhs = c.ins
    la, ra = c["lhs_axes"], c["rhs_axes"]
    attrs = (c[k] for k in ("stride", "low", "high", "lhs_dilation", "rhs_dilation"))
    spatial = tuple(
        Sliding(lhs.shape[a], rhs.shape[b], *numbers)
        for a, b, *numbers in zip(la[2:], ra[2:], *attrs, strict=True)
    )
    split = c["groups"] * c["batch_groups"]
    return ConvShape(
        la, ra, c["out_axes"], spatial, c["groups"], c["batch_groups"],
        batch=lhs.shape[la[0]] // c["batch_groups"],
        ins=rhs.shape[ra[1]],
        outs=rhs.shape[ra[0]] // split,
    )  # fmt: skip


def extents(c: OpCall) -> Shape:
    """The loops of one result: features of its group, then the taps along each spatial axis."""
    shape = conv_shape(c)
    return (shape.ins, *(axis.size for axis in shape.spatial))


def _check_ranks(lhs: TensorType, rhs: TensorType) -> None:
    if rhs.rank != lhs.rank or not 1 <= lhs.rank - 2 <= MOST_SPATIAL:
        raise GraphError(
            f"conv of {lhs} and {rhs}: both need batch or out feature, feature and the same 1 to "
            f"{MOST_SPATIAL} spatial axes"
        )


def _check_attrs(c: OpCall) -> None:
    lhs, rhs = c.ins
    spatial = lhs.rank - 2
    _check_ranks(lhs, rhs)
    for key in ("lhs_axes", "rhs_axes", "out_axes"):
        if len(checks.axes_attr(c, lhs.rank, key)) != lhs.rank:
            raise GraphError(f"attribute '{key}' is {c[key]}: need all {lhs.rank} axes by role")
    for key in ("stride", "low", "high", "lhs_dilation", "rhs_dilation"):
        if len(checks.ints_attr(c, key)) != spatial:
            raise GraphError(f"attribute '{key}' is {c[key]}: need one for each spatial axis")
    for key in ("groups", "batch_groups"):
        if checks.int_attr(c, key) < 1:
            raise GraphError(f"attribute '{key}' is {c[key]}: it must be positive")
    if c["groups"] > 1 and c["batch_groups"] > 1:
        raise GraphError("a conv has groups of features or of the batch, not both")


def _infer(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 2)
    dtype = checks.same_dtype(c)
    checks.dtype_in(dtype, (*FLOATS, *INTS))
    _check_attrs(c)
    lhs, rhs = c.ins
    batch, features = (lhs.shape[a] for a in c["lhs_axes"][:2])
    made, read = (rhs.shape[a] for a in c["rhs_axes"][:2])
    if features != read * c["groups"]:
        raise GraphError(
            f"conv of {lhs} and {rhs}: the image has {features} features on axis "
            f"{c['lhs_axes'][1]}, {c['groups']} groups of {read} are {read * c['groups']}"
        )
    for what, extent, key in (
        ("out features", made, "groups"),
        ("out features", made, "batch_groups"),
        ("images", batch, "batch_groups"),
    ):
        if extent % c[key]:
            raise GraphError(f"conv of {lhs} and {rhs}: {extent} {what} in {c[key]} {key}")
    spatial = conv_shape(c).spatial
    for k, axis in enumerate(spatial):
        check_sliding(axis, f"conv of {lhs} and {rhs}: spatial axis {k}")
    found = [0] * lhs.rank
    sizes = (batch // c["batch_groups"], made, *(axis.count for axis in spatial))
    for axis_of, extent in zip(c["out_axes"], sizes, strict=True):
        found[axis_of] = extent
    return (TensorType(tuple(found), dtype),)


def _placed(axes: Shape, by_role: Index) -> Index:
    """An index given by role, in the order of the axes."""
    found = dict(zip(axes, by_role, strict=True))
    return tuple(found[a] for a in range(len(axes)))


def conv_indices(c: OpCall, index: Index, at: Index) -> tuple[Index, Index, Expr]:
    """The elements of image and kernel whose product goes into result `index` at position `at` of
    `extents`, both in range, and whether the image has one there."""
    shape = conv_shape(c)
    n, o, *windows = (index[a] for a in shape.out_axes)
    feature, *taps = at
    inside: Expr = Lit(True, DType.BOOL)
    places: list[Expr] = []
    for axis, window, tap in zip(shape.spatial, windows, taps, strict=True):
        place, there = axis.at(window, tap)
        places.append(place)
        inside = ix.iand(inside, there)
    group = ix.idiv(o, shape.outs)
    image = ix.iadd(n, ix.imul(group, shape.batch)) if shape.batch_groups > 1 else n
    read = ix.iadd(feature, ix.imul(group, shape.ins)) if shape.groups > 1 else feature
    lhs = _placed(shape.lhs_axes, (image, read, *places))
    return lhs, _placed(shape.rhs_axes, (o, feature, *taps)), inside


def _roles(c: OpCall) -> OutputRoles | None:
    """Groups of features or of the batch are groups of out features; of one each, these index both
    image and kernel."""
    shape = conv_shape(c)
    made = shape.out_axes[1]
    windows = tuple(a for a in range(c.out.rank) if a != made)
    groups = shape.groups * shape.batch_groups
    if groups > 1 and shape.outs == 1:
        return OutputRoles((made,), windows, ())
    return OutputRoles((), windows, (made,), groups)


def _factor(c: OpCall, operand: int, index: Index, at: Index, pull: Pull) -> Expr:
    """Of the image zero where it has no element: infinite weights give NaN there, as padding in
    memory would."""
    lhs, rhs, inside = conv_indices(c, index, at)
    if operand:
        return pull(1, rhs)
    zero = number(0, c.ins[0].dtype.compute)
    if isinstance(inside, Lit):
        return pull(0, lhs) if inside.value else zero
    return call("select", inside, pull(0, lhs), zero)


def _term(c: OpCall, index: Index, at: Index, pull: Pull) -> Expr:
    return call("mul", *(_factor(c, operand, index, at, pull) for operand in (0, 1)))


def image_windows(image: np.ndarray, shape: ConvShape) -> np.ndarray:
    """A view [group, batch, windows..., feature, taps...] of the image, given by role."""
    plain = (Sliding(image.shape[0]), Sliding(image.shape[1]))
    image = spread_out(image, (*plain, *shape.spatial), 0)
    rank = len(shape.spatial)
    reach = tuple(axis.reach for axis in shape.spatial)
    view = np.lib.stride_tricks.sliding_window_view(image, reach, axis=tuple(range(2, 2 + rank)))
    steps = (slice(None, None, axis.stride) for axis in shape.spatial)
    taps = (slice(None, None, axis.window_dilation) for axis in shape.spatial)
    view = view[(slice(None), slice(None), *steps, *taps)]
    if shape.batch_groups > 1:
        view = view.reshape(shape.batch_groups, shape.batch, *view.shape[1:])
    else:
        view = view.reshape(len(image), shape.groups, shape.ins, *view.shape[2:])
        view = np.moveaxis(view, 1, 0)
    return np.moveaxis(view, 2, 2 + rank)


def _reference(arrays: Arrays, c: OpCall) -> Arrays:
    """One matmul over (group, windows, taps) x (group, taps, out features), windows laid out a part
    at a time."""
    shape = conv_shape(c)
    split, counts = shape.groups * shape.batch_groups, tuple(a.count for a in shape.spatial)
    terms = math.prod(extents(c))
    by_role = np.zeros((split, shape.batch, math.prod(counts), shape.outs), arrays[0].dtype)
    if by_role.size and terms:
        view = image_windows(arrays[0].transpose(shape.lhs_axes), shape)
        kernel = arrays[1].transpose(shape.rhs_axes).reshape(split, shape.outs, terms)
        kernel = np.ascontiguousarray(kernel.swapaxes(1, 2))
        each = split * math.prod(counts) * terms * arrays[0].itemsize
        step = max(1, PART_BYTES // each)
        for first in range(0, shape.batch, step):
            part = view[:, first : first + step].reshape(split, -1, terms)
            made = np.matmul(part, kernel)
            by_role[:, first : first + step] = made.reshape(split, -1, *by_role.shape[2:])
    joined = by_role.transpose(1, 0, 3, 2).reshape(shape.batch, split * shape.outs, *counts)
    return (joined.transpose(np.argsort(shape.out_axes)),)


def _axes(c: OpCall) -> AxisMap:
    shape = conv_shape(c)
    lhs: list[int | None] = [None] * c.out.rank
    rhs: list[int | None] = [None] * c.out.rank
    rhs[shape.out_axes[1]] = shape.rhs_axes[0]
    if shape.batch_groups == 1:
        lhs[shape.out_axes[0]] = shape.lhs_axes[0]
    if shape.depthwise:
        lhs[shape.out_axes[1]] = shape.lhs_axes[1]
    for k, axis in enumerate(shape.spatial, start=2):
        if axis.passes:
            lhs[shape.out_axes[k]] = shape.lhs_axes[k]
    return (tuple(lhs), tuple(rhs))


def _depends(c: OpCall) -> tuple[Shape, ...]:
    shape = conv_shape(c)
    grouped = shape.groups * shape.batch_groups > 1
    roles = range(0 if grouped else 2, c.out.rank)
    mapped = _axes(c)[0]
    return (tuple(sorted(a for k in roles if mapped[a := shape.out_axes[k]] is None)), ())


def _flops(c: OpCall) -> float:
    """Products of elements, not of padding and holes, and their sum."""
    shape = conv_shape(c)
    pairs = math.prod(census(axis).pairs for axis in shape.spatial)
    made = shape.batch * shape.outs * shape.groups * shape.batch_groups
    return 2.0 * made * shape.ins * pairs


def _needed(c: OpCall, made: int) -> tuple[int, ...]:
    """All results need what some window holds; fewer need no fewer elements than have, used by as
    many results as any element is, that many uses."""
    shape = conv_shape(c)
    counts = [census(axis) for axis in shape.spatial]
    split = shape.groups * shape.batch_groups
    if made >= c.out.size:
        images = math.prod(n.touched for n in counts) * shape.batch * shape.ins * split
        return images, math.prod(n.used for n in counts) * shape.ins * shape.outs * split
    terms = made * shape.ins * math.prod(n.fewest for n in counts)
    readers = shape.outs * math.prod(n.most for n in counts)
    users = shape.batch * math.prod(n.busiest for n in counts)
    return -(-terms // max(1, readers)), -(-terms // max(1, users))


def _strided(c: OpCall) -> StridedConv | None:
    """None with holes in the image, padding that cuts, groups of the batch, and nothing to do:
    libraries have no such convolution."""
    shape, (lhs, rhs) = conv_shape(c), c.ins
    plain = all(a.base_dilation == 1 and a.low >= 0 and a.high >= 0 for a in shape.spatial)
    if not plain or shape.batch_groups > 1 or 0 in (*lhs.shape, *rhs.shape, *c.out.shape):
        return None
    src, weights, dst = (
        _by_role(row_major(type_.shape), axes)
        for type_, axes in ((lhs, shape.lhs_axes), (rhs, shape.rhs_axes), (c.out, shape.out_axes))
    )
    if shape.groups > 1:
        outs, apart = shape.outs, weights.strides[0]
        split = (shape.groups, outs, *weights.shape[1:])
        weights = View(split, (outs * apart, apart, *weights.strides[1:]))
    windows = (StridedWindow(a.stride, a.window_dilation, a.low, a.high) for a in shape.spatial)
    return StridedConv(src, weights, dst, tuple(windows))


def _by_role(view: View, axes: Shape) -> View:
    return View(tuple(view.shape[a] for a in axes), tuple(view.strides[a] for a in axes))


def conv_attrs(spatial: int, **given: object) -> dict[str, object]:
    """The attributes of a conv over `spatial` axes, channels first, with what is `given`."""
    first = tuple(range(2 + spatial))
    ones, zeros = (1,) * spatial, (0,) * spatial
    plain = {
        "lhs_axes": first, "rhs_axes": first, "out_axes": first, "stride": ones, "low": zeros,
        "high": zeros, "lhs_dilation": ones, "rhs_dilation": ones, "groups": 1, "batch_groups": 1,
    }  # fmt: skip
    return {**plain, **given}


def _samples() -> list[Sample]:
    last, kernel_last = (0, 3, 1, 2), (3, 2, 0, 1)  # NHWC, HWIO
    cases: list[tuple[Shape, Shape, dict[str, object]]] = [
        ((2, 3, 7), (4, 3, 3), {"low": (1,), "high": (1,)}),
        ((1, 2, 5), (2, 2, 1), {}),
        ((1, 2, 9), (3, 2, 2), {"stride": (2,), "rhs_dilation": (3,), "low": (2,)}),
        ((2, 2, 4), (3, 2, 3), {"lhs_dilation": (2,), "low": (2,), "high": (1,)}),
        ((1, 1, 8), (1, 1, 3), {"low": (-1,), "high": (-2,)}),
        ((2, 2, 5, 6), (3, 2, 3, 2), {"low": (1, 0), "high": (1, 1), "stride": (1, 2)}),
        ((2, 5, 4, 3), (3, 3, 3, 2),
         {"lhs_axes": last, "rhs_axes": kernel_last, "out_axes": last, "low": (1, 1)}),
        ((1, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "low": (1, 1), "high": (1, 1)}),
        ((1, 4, 4), (6, 2, 3), {"groups": 2}),
        ((4, 2, 5), (6, 2, 3), {"batch_groups": 2}),
        ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"stride": (1, 2, 1)}),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"lhs_dilation": (2, 3), "low": (1, -1), "high": (2, 0)}),
        ((1, 40, 3), (2, 40, 1), {}),
        ((3, 4, 2), (2, 3, 3),
         {"lhs_axes": (2, 0, 1), "out_axes": (2, 1, 0)}),
    ]  # fmt: skip
    f32, found = DType.F32, []
    for lhs, rhs, given in cases:
        attrs = conv_attrs(len(lhs) - 2, **given)
        found.append(Sample((TensorType(lhs, f32), TensorType(rhs, f32)), attrs))
    for d in sampled((*FLOATS, *INTS)):
        attrs = conv_attrs(1, low=(1,), high=(0,))
        found.append(Sample((TensorType((1, 2, 5), d), TensorType((2, 2, 2), d)), attrs))
    return found


register(
    OpSpec(
        name="conv",
        family=Family.CONTRACTION,
        infer=_infer,
        reference=_reference,
        flops=_flops,
        samples=_samples,
        fold=SUM,
        over=FoldOver(extents, _term),
        factors=Factors(_roles, _factor),
        convolves=_strided,
        axes=_axes,
        depends=_depends,
        needed=_needed,
        terms=lambda c: math.prod(extents(c)),
    )
)
