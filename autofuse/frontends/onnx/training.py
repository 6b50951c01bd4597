"""Rules for ONNX's training steps (domain ai.onnx.preview.training): each tensor on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.types import Value

TRAINING = "ai.onnx.preview.training"
# The rate, the number of updates so far, a tensor with its gradient and what is kept of it.
_Step = Callable[[OnnxCall, Value, Value, Sequence[Value]], Sequence[Value]]


def _each(step: _Step, kept: int) -> OnnxRule:
    """Operands and results are tensors, gradients and `kept` states, all of one kind together."""

    def rule(c: OnnxCall) -> list[Value]:
        rate, count = (c.w.reshape(c.value(k), ()) for k in (0, 1))
        values = c.values(2)
        tensors, rest = divmod(len(values), 2 + kept)
        if rest:
            raise FrontendError(f"{len(values)} operands are not {2 + kept} for each tensor")
        made = [step(c, rate, count, values[k::tensors]) for k in range(tensors)]
        return [each[k] for k in range(1 + kept) for each in made]

    return rule


def _regularised(c: OnnxCall, x: Value, g: Value) -> Value:
    return c.w.add(c.w.mul(x, float(c["norm_coefficient"])), g)


def _first(c: OnnxCall, count: Value, then: Value, otherwise: Value) -> Value:
    """`then` once updates were made, `otherwise` before."""
    return c.w.select(c.w.map("gt", count, 0), then, otherwise)


def _adagrad(c: OnnxCall, rate: Value, count: Value, of: Sequence[Value]) -> tuple[Value, ...]:
    """Duchi, Hazan, Singer (2011)."""
    w, (x, g, squares) = c.w, of
    decay = w.add(w.mul(w.cast(count, w.dtype(rate)), float(c["decay_factor"])), 1.0)
    g = _regularised(c, x, g)
    squares = w.add(squares, w.mul(g, g))
    root = w.add(w.map("sqrt", squares), float(c["epsilon"]))
    step = w.div(w.mul(w.cast(w.div(rate, decay), w.dtype(x)), g), root)
    return w.sub(x, step), squares


def _adam(c: OnnxCall, rate: Value, count: Value, of: Sequence[Value]) -> tuple[Value, ...]:
    """Kingma, Ba (2014), with the bias corrected once updates were made."""
    w, (x, g, mean, squares) = c.w, of
    alpha, beta = float(c["alpha"]), float(c["beta"])
    g = _regularised(c, x, g)
    mean = w.add(w.mul(mean, alpha), w.mul(g, 1.0 - alpha))
    squares = w.add(w.mul(squares, beta), w.mul(w.mul(g, g), 1.0 - beta))
    root = w.add(w.map("sqrt", squares), float(c["epsilon"]))
    updates = w.cast(count, w.dtype(rate))
    low, high = (w.sub(1.0, w.map("pow", w.scalar(k, updates), updates)) for k in (alpha, beta))
    corrected = w.div(w.mul(rate, w.map("sqrt", high)), low)
    speed = w.cast(_first(c, count, corrected, rate), w.dtype(x))
    moved = w.sub(x, w.mul(speed, w.div(mean, root)))
    return w.mul(moved, 1.0 - float(c["norm_coefficient_post"])), mean, squares


def _momentum(c: OnnxCall, rate: Value, count: Value, of: Sequence[Value]) -> tuple[Value, ...]:
    """Polyak's heavy ball, or with mode nesterov what it will be one step on."""
    w, (x, g, speed) = c.w, of
    alpha, beta, mode = float(c["alpha"]), float(c["beta"]), str(c["mode"])
    if mode not in ("standard", "nesterov"):
        raise FrontendError(f"mode '{mode}' is not standard or nesterov")
    g = _regularised(c, x, g)
    weight = _first(c, count, w.scalar(beta, g), w.scalar(1.0, g))
    speed = w.add(w.mul(speed, alpha), w.mul(g, weight))
    step = speed if mode == "standard" else w.add(g, w.mul(speed, alpha))
    return w.sub(x, w.mul(step, w.cast(rate, w.dtype(x)))), speed


ONNX_TRAINING: OnnxRules = {
    (TRAINING, "Adagrad", 1): _each(_adagrad, 1),
    (TRAINING, "Adam", 1): _each(_adam, 2),
    (TRAINING, "Momentum", 1): _each(_momentum, 1),
}
