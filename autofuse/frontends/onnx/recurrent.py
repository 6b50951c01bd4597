"""Rules for ONNX's recurrent layers: loops over time around one product each.

What inputs contribute to gates is a product of all steps at once, before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import activations, moves
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.layers import require_float
from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

_Activation = Callable[[GraphWriter, Value], Value]


def _affine(w: GraphWriter, x: Value, alpha: float, beta: float) -> Value:
    return w.add(w.mul(x, alpha), beta)


_PLAIN: dict[str, _Activation] = {
    "relu": activations.relu,
    "sigmoid": lambda w, x: w.map("logistic", x),
    "softplus": activations.softplus,
    "softsign": activations.softsign,
    "tanh": lambda w, x: w.map("tanh", x),
}
# With alpha, and beta where a second number is given: their defaults, those of the operators.
_SCALED: dict[str, tuple[Callable[..., Value], tuple[float, ...]]] = {
    "affine": (_affine, (1.0, 0.0)),
    "elu": (activations.elu, (1.0,)),
    "hardsigmoid": (activations.hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (activations.leaky_relu, (0.01,)),
    "scaledtanh": (lambda w, x, a, b: w.mul(w.map("tanh", w.mul(x, b)), a), (1.0, 1.0)),
    "thresholdedrelu": (activations.thresholded_relu, (1.0,)),
}


def _ways(c: OnnxCall) -> tuple[bool, ...]:
    """Of each direction whether it is the reverse one."""
    direction = str(c.attr("direction", "forward"))
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in ways or c.shape(1)[0] != len(ways[direction]):
        raise FrontendError(f"direction '{direction}' does not fit weights {c.shape(1)}")
    return ways[direction]


def _activations(c: OnnxCall, plain: Sequence[str], directions: int) -> list[list[_Activation]]:
    """Those of each direction; alphas and betas are handed out in order to those that take them.
    `clip` bounds what they are applied to."""
    names = c.attr("activations") or list(plain) * directions
    count = len(plain)
    if len(names) < count * directions:
        raise FrontendError(f"{len(names)} activations for {count * directions}")
    numbers = [list(c.attr(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    found = [_activation(str(name).lower(), numbers) for name in names[: count * directions]]
    clip = c.attr("clip")
    if clip:
        found = [partial(_clipped, function=each, clip=float(clip)) for each in found]
    return [found[k * count : (k + 1) * count] for k in range(directions)]


def _activation(name: str, numbers: Sequence[list[float]]) -> _Activation:
    if name in _PLAIN:
        return _PLAIN[name]
    if name not in _SCALED:
        raise FrontendError(f"activation '{name}' is not known")
    function, defaults = _SCALED[name]
    given = [left.pop(0) if left else plain for left, plain in zip(numbers, defaults, strict=False)]
    return lambda w, x: function(w, x, *map(float, given))


def _clipped(w: GraphWriter, x: Value, function: _Activation, clip: float) -> Value:
    return function(w, w.map("clamp", x, -clip, clip))


# Cells: one step of each layer


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as it is written in the body of a loop: what inputs contribute to the gates, [batch,
    gates], and what of the layer is captured: recurrent weights [gates, hidden], and `extra`."""

    w: GraphWriter
    inputs: Value
    weights: Value
    extra: tuple[Value, ...]
    activations: Sequence[_Activation]
    flag: bool


_Cell = Callable[[_Step, Sequence[Value]], tuple[Value, ...]]


def _product(w: GraphWriter, h: Value, weights: Value) -> Value:
    return composites.dot(w, h, weights, ((1,), (1,)))


def _apart(w: GraphWriter, v: Value, count: int, axis: int) -> tuple[Value, ...]:
    return moves.split(w, v, axis, [w.shape(v)[axis] // count] * count)


def _rnn_cell(s: _Step, states: Sequence[Value]) -> tuple[Value, ...]:
    (f,) = s.activations
    return (f(s.w, s.w.add(s.inputs, _product(s.w, states[0], s.weights))),)


def _gru_cell(s: _Step, states: Sequence[Value]) -> tuple[Value, ...]:
    """With the flag (linear_before_reset) the product comes before the reset; its bias is then the
    extra value."""
    w, (f, g), (h,) = s.w, s.activations, states
    own = _apart(w, s.inputs, 3, 1)
    weights = _apart(w, s.weights, 3, 0)
    update, reset = (f(w, w.add(x, _product(w, h, r)))
                     for x, r in zip(own[:2], weights[:2], strict=True))  # fmt: skip
    if s.flag:
        hidden = w.mul(reset, w.add(_product(w, h, weights[2]), s.extra[0]))
    else:
        hidden = _product(w, w.mul(reset, h), weights[2])
    made = g(w, w.add(own[2], hidden))
    return (w.add(w.mul(w.sub(1.0, update), made), w.mul(update, h)),)


def _lstm_cell(s: _Step, states: Sequence[Value]) -> tuple[Value, ...]:
    """The extra values are peepholes; with the flag (input_forget) one gate is both."""
    w, (f, g, h_of), (h, cell) = s.w, s.activations, states
    i, o, forget, new = _apart(w, w.add(s.inputs, _product(w, h, s.weights)), 4, 1)
    if s.extra:
        i, forget = w.add(i, w.mul(cell, s.extra[0])), w.add(forget, w.mul(cell, s.extra[2]))
    i = f(w, i)
    kept = w.sub(1.0, i) if s.flag else f(w, forget)
    cell = w.add(w.mul(kept, cell), w.mul(i, g(w, new)))
    if s.extra:
        o = w.add(o, w.mul(cell, s.extra[1]))
    return w.mul(f(w, o), h_of(w, cell)), cell


# Layers


@dataclass(frozen=True, slots=True)
class _Layer:
    """A kind of layer: how many gates and states it has, and its plain activations."""

    cell: _Cell
    gates: int
    states: int
    activations: tuple[str, ...]
    flag: str = ""


def _row(w: GraphWriter, v: Value, k: int) -> Value:
    return w.reshape(w.part(v, 0, k, k + 1), w.shape(v)[1:])


def _biases(c: OnnxCall, layer: _Layer, d: int, kind: DType) -> tuple[Value | None, list[Value]]:
    """What is added before the loop, and what the cell adds itself."""
    w = c.w
    if not c.has(3):
        return None, []
    own, recurrent = _apart(w, _row(w, c.value(3, kind), d), 2, 0)
    if layer.cell is not _gru_cell or not c.attr(layer.flag, 0):
        return w.add(own, recurrent), []
    rest = _apart(w, recurrent, 3, 0)
    none = w.full(0, w.shape(rest[2]), kind)
    return w.add(own, w.concat([rest[0], rest[1], none], 0)), [rest[2]]


def _extra(c: OnnxCall, layer: _Layer, d: int, own: list[Value], kind: DType) -> list[Value]:
    """What a cell reads besides inputs and weights."""
    w = c.w
    if layer.cell is _lstm_cell and c.has(7):
        return list(_apart(w, _row(w, c.value(7, kind), d), 3, 0))
    if layer.cell is _gru_cell and c.attr(layer.flag, 0) and not own:
        return [w.full(0, (c.shape(2)[2],), kind)]
    return own


def _ran(
    c: OnnxCall, layer: _Layer, x: Value, d: int, reverse: bool, activations: Sequence[_Activation]
) -> tuple[Value, list[Value]]:
    """One direction over `x` [time, batch, input]: [time, batch, hidden], and the last states.

    A sequence that is shorter than the others rests after its end; backwards it begins there."""
    w, kind = c.w, c.w.dtype(x)
    steps, batch, hidden = w.shape(x)[0], w.shape(x)[1], c.shape(2)[2]
    bias, own = _biases(c, layer, d, kind)
    weights = _row(w, c.value(1, kind), d)
    inputs = composites.dot(w, x, weights, ((2,), (1,)))
    inputs = inputs if bias is None else w.add(inputs, bias)
    begin = [_first_state(c, 5 + k, d, (batch, hidden), kind) for k in range(layer.states)]
    recurrent, extra = _row(w, c.value(2, kind), d), _extra(c, layer, d, own, kind)
    lengths = w.reshape(c.value(4, DType.I32), (-1, 1)) if c.has(4) else None
    loop = LoopWriter(w, steps)
    body, states = loop.body, [loop.state(v) for v in begin]
    at = body.sub(steps - 1, loop.step) if reverse else loop.step
    row = body.op("gather", loop.capture(inputs), at, axis=0)
    held = tuple(loop.capture(v) for v in extra)
    step = _Step(
        body, row, loop.capture(recurrent), held, activations, bool(c.attr(layer.flag, 0))
    )  # fmt: skip
    made = layer.cell(step, states)
    shown = made[0]
    if lengths is not None:
        alive = body.map("gt", loop.capture(lengths), at)
        made = tuple(body.select(alive, new, old) for new, old in zip(made, states, strict=True))
        shown = body.select(alive, shown, 0)
    *last, rows = loop.finish(made, [shown])
    return (w.reverse(rows, 0) if reverse else rows), last


def _first_state(c: OnnxCall, k: int, d: int, shape: tuple[int, int], kind: DType) -> Value:
    """Operand `k` as it is at the start of direction `d`; zeros where it is left out."""
    w = c.w
    if not c.has(k):
        return w.full(0, shape, kind)
    given = c.value(k, kind)
    return _row(w, w.transpose(given, (1, 0, 2)) if c.attr("layout", 0) else given, d)


def _recurrent(layer: _Layer) -> OnnxRule:
    def rule(c: OnnxCall) -> list[Value]:
        w, dtype = c.w, require_float(c.dtype(0))
        turned = bool(c.attr("layout", 0))
        x = c.value(0, dtype.compute)
        x = w.transpose(x, (1, 0, 2)) if turned else x
        ways = _ways(c)
        functions = _activations(c, layer.activations, len(ways))
        found = [_ran(c, layer, x, d, reverse, functions[d]) for d, reverse in enumerate(ways)]
        rows = moves.stack(w, [made for made, _ in found], 1)
        finals = [moves.stack(w, list(each), 0)
                  for each in zip(*(last for _, last in found), strict=True)]  # fmt: skip
        if turned:
            rows = w.transpose(rows, (2, 0, 1, 3))
            finals = [w.transpose(v, (1, 0, 2)) for v in finals]
        return [w.cast(v, dtype) for v in (rows, *finals)]

    return rule


ONNX_RECURRENT: OnnxRules = {
    (STANDARD, "GRU", 7): _recurrent(
        _Layer(_gru_cell, 3, 1, ("Sigmoid", "Tanh"), "linear_before_reset")
    ),
    (STANDARD, "LSTM", 7): _recurrent(
        _Layer(_lstm_cell, 4, 2, ("Sigmoid", "Tanh", "Tanh"), "input_forget")
    ),
    (STANDARD, "RNN", 7): _recurrent(_Layer(_rnn_cell, 1, 1, ("Tanh",))),
}
