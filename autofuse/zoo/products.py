"""Matrix products with much around them: a loss over a vocabulary, gates, bytes, odd layouts."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
# Each order of the axes of the left operand, of the right one and of the result, once.
ORDERS = (
    "bmk,bkn->bmn", "mbk,kbn->mbn", "mkb,knb->mnb", "bkm,bnk->bnm", "kbm,nbk->nbm", "kmb,nkb->nmb",
)  # fmt: skip


def _weights(rows: int, columns: int) -> Spec:
    bound = math.sqrt(3.0 / rows)
    return spec((rows, columns), low=-bound, high=bound)


def vocabulary_loss(tokens: int, width: int, vocabulary: int) -> Graph:
    """The mean cross-entropy of h f32[tokens, width] @ w f32[vocabulary, width] transposed against
    labels i32[tokens]; nobody asks for the logits."""

    def fn(h: Array, w: Array, labels: Array) -> dict[str, Array]:
        logits = h @ w.mT
        right = xp.arange(vocabulary) == labels[:, None]
        picked = xp.sum(xp.where(right, logits, 0.0), axis=1)
        return {"loss": xp.mean(xp.logsumexp(logits, axis=1) - picked)}

    bound = 4.0 * math.sqrt(3.0 / width)
    return trace(
        fn, spec((tokens, width)), spec((vocabulary, width), low=-bound, high=bound),
        spec(tokens, "i32", low=0, high=vocabulary - 1),
    )  # fmt: skip


def gated_mlp(rows: int, width: int, hidden: int) -> Graph:
    """(silu(x @ w_gate) * (x @ w_up)) @ w_down for x f32[rows, width], w_gate and w_up
    f32[width, hidden]."""

    def fn(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> dict[str, Array]:
        return {"y": (xp.silu(x @ w_gate) * (x @ w_up)) @ w_down}

    up = _weights(width, hidden)
    return trace(fn, spec((rows, width)), up, up, _weights(hidden, width))


def int8_product(rows: int, width: int, outs: int) -> Graph:
    """x f32[rows, width] @ (weights i8[width, outs] * scale f32[outs]) + bias f32[outs]."""

    def fn(x: Array, weights: Array, scale: Array, bias: Array) -> dict[str, Array]:
        return {"y": x @ (weights.astype("f32") * scale) + bias}

    bound = math.sqrt(3.0 / width) / 127
    return trace(
        fn, spec((rows, width)), spec((width, outs), "i8", low=-127, high=127),
        spec(outs, low=bound / 2, high=bound), spec(outs),
    )  # fmt: skip


def batched_products(batch: int, m: int, k: int, n: int) -> Graph:
    """A product of `batch` matrices m x k and k x n for each of ORDERS: x_i, y_i and the results
    have their axes in the order that says."""
    extent = {"b": batch, "m": m, "k": k, "n": n}

    def fn(x: list[Array], y: list[Array]) -> list[Array]:
        found = []
        for order, left, right in zip(ORDERS, x, y, strict=True):
            ins, out = order.split("->")
            a, b = ins.split(",")
            product = _arranged(left, a, "bmk") @ _arranged(right, b, "bkn")
            found.append(_arranged(product, "bmn", out))
        return found

    operands = [order.split("->")[0].split(",") for order in ORDERS]
    x, y = ([spec([extent[a] for a in pair[side]]) for pair in operands] for side in (0, 1))
    return trace(fn, x, y)


def _arranged(x: Array, have: str, want: str) -> Array:
    return xp.permute_dims(x, tuple(have.index(a) for a in want))
