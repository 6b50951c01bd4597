"""Transposes between channels first and channels last meet, whatever lies between them."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.window_reduction import window_attrs
from autofuse.simplify import simplify
from tests.support.simplify_cases import Writer
from tests.support.simplify_layout_cases import first, last

CHANNELS = 3


class Image:
    """Random work on a channels-first image, beside a chain that reads it again."""

    def __init__(self, seed: int) -> None:
        self.rng, self.w = np.random.default_rng(seed), Writer()
        self.x = self.w.builder.input("x", (2, 6, 5, CHANNELS), DType.F32)
        self.bias = self.w.builder.input("bias", (CHANNELS,), DType.F32)
        self.at = first(self.w, self.x)

    def step(self) -> None:
        ways = (self.activated, self.biased, self.pooled, self.padded, self.rejoined, self.scaled)
        self.at = ways[int(self.rng.integers(len(ways)))]()

    def graph(self, steps: int) -> Graph:
        for _ in range(steps):
            self.step()
        mean = self.w.reduce_sum(self.at, axes=(2, 3))
        return canonical(self.w.builder.build([last(self.w, self.at), mean]))

    def _channels(self, value: Value) -> Value:
        shape = self.w.kind(self.at).shape
        return self.w.broadcast(value, shape=shape, dims=(1,))

    def activated(self) -> Value:
        return self.w.mul(self.at, self.w.logistic(self.at))

    def biased(self) -> Value:
        return self.w.max(self.w.add(self.at, self._channels(self.bias)), 0.0)

    def pooled(self) -> Value:
        window = window_attrs((1, 1, 2, 3), low=(0, 0, 1, 1), high=(0, 0, 0, 1))
        return self.w.reduce_window_max(self.at, **window)

    def padded(self) -> Value:
        zero = self.w.number(0.0)
        wide = self.w.pad(self.at, zero, low=(0, 0, 1, 0), high=(0, 0, 0, 0))
        return self.w.cut(wide, 2, 0, self.w.kind(self.at).shape[2])

    def rejoined(self) -> Value:
        """Channels apart, each part read on its own, and end to end again."""
        parts = self.w.cut(self.at, 1, 0, 1), self.w.cut(self.at, 1, 1, CHANNELS)
        return self.w.concat(self.w.exp(self.w.neg(parts[0])), self.w.abs(parts[1]), axis=1)

    def scaled(self) -> Value:
        """Squeeze and excitation: each channel by what is in all of it."""
        return self.w.mul(self.at, self._scale())

    def _scale(self) -> Value:
        total = self.w.reduce_sum(self.at, axes=(0, 2, 3))
        return self._channels(self.w.tanh(self.w.mul(total, 0.01)))


@pytest.mark.parametrize("seed", range(16))
def test_no_transpose_is_left_between_images_that_are_channels_last(seed: int) -> None:
    graph = Image(seed).graph(8)
    found = simplify(graph).graph
    assert "transpose" not in {node.op for node in found.nodes}
    assert simplify(found).steps == ()
    inputs = random_inputs(graph, seed)
    for wanted, got in zip(evaluate(graph, inputs), evaluate(found, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_steps_grow_with_the_graph() -> None:
    small, large = (len(simplify(Image(1).graph(steps)).steps) for steps in (20, 200))
    assert large <= 12 * small


def test_a_transpose_that_many_read_is_looked_at_once() -> None:
    """Readers are not counted again for each of them."""
    w = Writer()
    x = first(w, w.builder.input("x", (1, 2, 2, 2), DType.F32))
    made = [w.mul(x, float(k)) for k in range(2, 400)]
    graph = canonical(w.builder.build([*made, x]))
    assert simplify(graph).graph == graph
