"""Rules for ONNX operators that normalise, and for losses."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.graph.composites import activations
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.layers import require_float
from autofuse.graph.composites.order import take_along
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes
from autofuse.ops.dtypes import DType

I32 = DType.I32


def _operand(c: OnnxCall) -> Value:
    """The first operand, a float, in the dtype that it is computed in."""
    return c.value(0, require_float(c.dtype(0)).compute)


def _beside(c: OnnxCall, k: int, dtype: DType) -> Value:
    """A row with one number for each channel, laid out along axis 1."""
    around = (-1, *(1 for _ in c.shape(0)[2:]))
    return c.w.reshape(c.value(k, dtype), around)


def _batch_norm(c: OnnxCall) -> list[Value]:
    """With the running statistics; where it trains with the batch's own, which move the running
    ones. The variance is over the count of elements."""
    w, own, eps, x = c.w, c.dtype(0), float(c["epsilon"]), _operand(c)
    trains = _trains(c)
    if not trains:
        found = composites.batch_norm(w, x, c.value(3), c.value(4), c.value(1), c.value(2), eps)
        return [w.cast(found, own)]
    if c.version < 14:
        raise FrontendError("a batch norm that trains is supported from version 14 on")
    axes = tuple(a for a in range(len(w.shape(x))) if a != 1)
    scale, bias = (_beside(c, k, w.dtype(x)) for k in (1, 2))
    found = composites.layer_norm(w, x, scale, bias, eps, axes)
    kept = float(c["momentum"])
    moved = []
    for k, statistic in ((3, composites.mean(w, x, axes)), (4, composites.var(w, x, axes))):
        before = c.value(k, c.dtype(k).compute)
        wide = w.cast(statistic, w.dtype(before))
        after = w.add(w.mul(before, kept), w.mul(wide, 1.0 - kept))
        moved.append(w.cast(after, c.dtype(k)))
    return [w.cast(found, own), *moved]


def _trains(c: OnnxCall) -> bool:
    """As an attribute says or, in some versions, the number of results."""
    if not c.attr("spatial", 1):
        raise FrontendError("statistics of every element on its own are not supported")
    if c.version >= 14:
        return bool(c.attr("training_mode", 0))
    return not c.attr("is_test", 0) if c.version < 7 else any(c.wanted[1:])


def _instance_norm(c: OnnxCall) -> Value:
    w, x = c.w, _operand(c)
    axes = range(2, len(w.shape(x)))
    scale, bias = (_beside(c, k, w.dtype(x)) for k in (1, 2))
    return w.cast(composites.layer_norm(w, x, scale, bias, float(c["epsilon"]), axes), c.dtype(0))


def _stashed(c: OnnxCall) -> DType:
    """The dtype that statistics are computed in."""
    kinds = {1: DType.F32, 11: DType.F64, 10: DType.F16, 16: DType.BF16}
    number = int(c.attr("stash_type", 1))
    if number not in kinds:
        raise FrontendError(f"statistics of element type {number} are not supported")
    kind = kinds[number].compute
    return DType.F64 if c.dtype(0) is DType.F64 else kind


def _layer_norm(c: OnnxCall) -> list[Value]:
    w, own, eps = c.w, c.dtype(0), float(c["epsilon"])
    x = c.value(0, _stashed(c))
    rank = len(w.shape(x))
    (first,) = normal_axes(int(c["axis"]), rank)
    axes = tuple(range(first, rank))
    scale, bias = c.value(1, w.dtype(x)), c.optional(2, w.dtype(x))
    found = [w.cast(composites.layer_norm(w, x, scale, bias, eps, axes), own)]
    if any(c.wanted[1:]):
        mean = composites.mean(w, x, axes, keepdims=True)
        spread = composites.var(w, x, axes, keepdims=True)
        found += [mean, w.map("rsqrt", w.add(spread, eps))]
    return found


def _rms_norm(c: OnnxCall) -> Value:
    w, x = c.w, c.value(0, _stashed(c))
    rank = len(w.shape(x))
    (first,) = normal_axes(int(c["axis"]), rank)
    scale = c.value(1, w.dtype(x))
    found = composites.rms_norm(w, x, scale, float(c["epsilon"]), range(first, rank))
    return w.cast(found, c.dtype(0))


def _group_norm(c: OnnxCall) -> Value:
    """Statistics of neighbouring channels; scale and bias are one for each channel, before version
    21 one for each group."""
    w, groups = c.w, int(c["num_groups"])
    x = c.value(0, _stashed(c))
    shape = w.shape(x)
    scale, bias = (c.value(k, w.dtype(x)) for k in (1, 2))
    if c.version < 21:
        apart = (groups, shape[1] // groups)
        scale, bias = (w.reshape(w.broadcast(v, apart, (0,)), (-1,)) for v in (scale, bias))
    found = composites.group_norm(w, x, groups, scale, bias, float(c["epsilon"]))
    return w.cast(found, c.dtype(0))


def _mean_variance_norm(c: OnnxCall) -> Value:
    """As the standard's own body has it: 1e-9 is added to the root."""
    w, x = c.w, _operand(c)
    axes = normal_axes([int(a) for a in c["axes"]], len(w.shape(x)))
    centred = w.sub(x, composites.mean(w, x, axes, keepdims=True))
    square = composites.mean(w, w.mul(centred, centred), axes, keepdims=True)
    return w.cast(w.div(centred, w.add(w.map("sqrt", square), 1e-9)), c.dtype(0))


def _lp_norm(c: OnnxCall) -> Value:
    """Over its p-norm along an axis; zeros stay zeros."""
    w, x, p = c.w, _operand(c), int(c["p"])
    powers = w.map("abs", x) if p == 1 else w.mul(x, x)
    if p not in (1, 2):
        raise FrontendError(f"norm {p} is not 1 or 2")
    total = w.reduce("reduce_sum", powers, int(c["axis"]), keepdims=True)
    norm = total if p == 1 else w.map("sqrt", total)
    none = w.map("eq", norm, 0)
    return w.cast(w.select(none, 0.0, w.div(x, w.select(none, 1.0, norm))), c.dtype(0))


# Losses


def _picked(c: OnnxCall, scores: Value) -> tuple[Value, Value | None]:
    """Minus the score of each place's class, [batch, ...], times its weight; and the weights."""
    w = c.w
    target, classes = c.value(1, I32), w.shape(scores)[1]
    ignored = c.attr("ignore_index")
    counts = None if ignored is None else w.map("ne", target, int(ignored))
    within = target if counts is None else w.select(counts, target, 0)
    shape = w.shape(target)
    place = w.reshape(within, (shape[0], 1, *shape[1:]))
    loss = w.map("neg", w.reshape(take_along(w, scores, place, 1), shape))
    weight = None
    if c.has(2):
        row = c.value(2, w.dtype(scores))
        weight = w.op("gather", row, w.map("clamp", within, 0, classes - 1), axis=0)
    if counts is not None:
        one = w.full(1, shape, w.dtype(scores)) if weight is None else weight
        weight = w.select(counts, one, 0.0)
    return (loss if weight is None else w.mul(loss, weight)), weight


def _reduced(w: GraphWriter, loss: Value, weight: Value | None, how: str) -> Value:
    """All losses, their sum, or their weighted mean."""
    if how == "none":
        return loss
    if how not in ("sum", "mean"):
        raise FrontendError(f"reduction '{how}' is not none, sum or mean")
    if how == "sum" or weight is not None:
        total = w.reduce("reduce_sum", loss)
        return total if how == "sum" or weight is None else w.div(
            total, w.reduce("reduce_sum", weight)
        )  # fmt: skip
    return composites.mean(w, loss)


def _likelihood_loss(c: OnnxCall) -> Value:
    loss = _picked(c, _operand(c))
    return c.w.cast(_reduced(c.w, *loss, str(c["reduction"])), c.dtype(0))


def _cross_entropy(c: OnnxCall) -> Sequence[Value]:
    """The loss of the logarithm of softmax over classes, which comes out too."""
    scores = activations.log_softmax(c.w, _operand(c), 1)
    loss = _reduced(c.w, *_picked(c, scores), str(c["reduction"]))
    return [c.w.cast(v, c.dtype(0)) for v in (loss, scores)]


# Products of a few numbers


def _determinant(c: OnnxCall) -> Value:
    """By the first row's minors: matrices are small."""
    w, x = c.w, _operand(c)
    *lead, rows, columns = w.shape(x)
    if rows != columns or rows > 4:
        raise FrontendError(f"determinants of matrices of {rows} x {columns} are not supported")

    def at(row: int, column: int) -> Value:
        start = [0] * len(lead) + [row, column]
        stop = [*lead, row + 1, column + 1]
        return w.reshape(w.slice(x, start, stop), lead)

    def minor(row: int, kept: tuple[int, ...]) -> Value:
        if len(kept) == 1:
            return at(row, kept[0])
        total: Value | None = None
        for k, column in enumerate(kept):
            part = w.mul(at(row, column), minor(row + 1, (*kept[:k], *kept[k + 1 :])))
            signed = w.map("neg", part) if k % 2 else part
            total = signed if total is None else w.add(total, signed)
        assert total is not None
        return total

    if not rows:
        return w.full(1, lead, c.dtype(0))
    return w.cast(minor(0, tuple(range(columns))), c.dtype(0))


def _swiglu(c: OnnxCall) -> Value:
    """a times the logistic of alpha a, times b."""
    w, kind = c.w, c.dtype(0).compute
    a, b = c.value(0, kind), c.value(1, kind)
    gated = activations.silu(w, a, float(c.attr("alpha", 1.0)))
    return w.cast(w.mul(gated, b), c.dtype(0))


ONNX_NORMS: OnnxRules = {
    (STANDARD, "BatchNormalization", 6): _batch_norm,
    (STANDARD, "Det", 11): _determinant,
    (STANDARD, "GroupNormalization", 18): _group_norm,
    (STANDARD, "InstanceNormalization", 6): _instance_norm,
    (STANDARD, "LayerNormalization", 17): _layer_norm,
    (STANDARD, "LpNormalization", 1): _lp_norm,
    (STANDARD, "MeanVarianceNormalization", 9): _mean_variance_norm,
    (STANDARD, "NegativeLogLikelihoodLoss", 12): _likelihood_loss,
    (STANDARD, "RMSNormalization", 23): _rms_norm,
    (STANDARD, "SoftmaxCrossEntropyLoss", 12): _cross_entropy,
    (STANDARD, "SwiGLU", 1): _swiglu,
}
