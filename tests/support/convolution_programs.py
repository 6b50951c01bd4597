"""Convolutions of every kind with what follows them: axes, layouts, groups, strides, holes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.ops.convolution import conv_attrs
from autofuse.ops.dtypes import DType


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """The numbers of one convolution (see `graph_of`), with a result that is not empty."""
    spatial = draw(st.integers(1, 3))
    each = {
        key: tuple(draw(st.integers(*ends)) for _ in range(spatial))
        for key, ends in {
            "sizes": (2, 9 if spatial < 3 else 4), "taps": (1, 3), "stride": (1, 2),
            "low": (-1, 2), "high": (-1, 2), "lhs_dilation": (1, 2), "rhs_dilation": (1, 2),
        }.items()
    }  # fmt: skip
    reach = zip(each["taps"], each["rhs_dilation"], strict=True)
    needed = tuple((taps - 1) * apart + 3 for taps, apart in reach)
    each["sizes"] = tuple(map(max, zip(each["sizes"], needed, strict=True)))
    return {
        "batch": draw(st.integers(1, 2)), "groups": draw(st.sampled_from((1, 1, 2, 3, 20))),
        "ins": draw(st.sampled_from((1, 3, 16, 20))), "outs": draw(st.sampled_from((1, 3, 16, 70))),
        "last": draw(st.booleans()), **each,
    }  # fmt: skip


def graph_of(case: dict[str, Any], dtype: DType = DType.F32) -> Graph:
    """tanh((conv(x, k) + bias) / 10), channels `last` or first."""
    w, groups, spatial = GraphWriter(), case["groups"], len(case["sizes"])
    middle = tuple(range(1, spatial + 1))
    first = tuple(range(spatial + 2))
    image_axes = (0, spatial + 1, *middle) if case["last"] else first
    kernel_axes = (spatial + 1, spatial, *range(spatial)) if case["last"] else first
    ins, outs = case["ins"], case["outs"] * groups
    image = _lying(image_axes, (case["batch"], ins * groups, *case["sizes"]))
    kernel = _lying(kernel_axes, (outs, ins, *case["taps"]))
    made = w.op(
        "conv", w.input("x", image, dtype), w.input("k", kernel, dtype),
        **conv_attrs(
            spatial, lhs_axes=image_axes, rhs_axes=kernel_axes, out_axes=image_axes, groups=groups,
            **{k: case[k] for k in ("stride", "low", "high", "lhs_dilation", "rhs_dilation")},
        ),
    )  # fmt: skip
    bias = w.input("bias", (outs,) if case["last"] else (outs, *(1,) * spatial), dtype)
    return w.build([w.op("tanh", w.mul(w.add(made, bias), 0.1))], ["y"])


def _lying(axes: tuple[int, ...], by_role: tuple[int, ...]) -> tuple[int, ...]:
    found = dict(zip(axes, by_role, strict=True))
    return tuple(found[a] for a in range(len(axes)))
