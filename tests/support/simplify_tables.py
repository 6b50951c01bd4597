"""Every case of a simplification, and numbers that rules must not trip over."""

from __future__ import annotations

import numpy as np

from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from tests.support.simplify_cases import CASES
from tests.support.simplify_layout_cases import LAYOUTS
from tests.support.simplify_loop_cases import LOOPS
from tests.support.simplify_moves_cases import MOVES
from tests.support.simplify_update_cases import UPDATES
from tests.support.simplify_while_cases import WHILES

EVERY = [*CASES, *MOVES, *LAYOUTS, *LOOPS, *UPDATES, *WHILES]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, -2.5, 3.0, 1e-30, 1e30]


def special_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Numbers that rules must not trip over, and others."""
    rng, made = np.random.default_rng(seed), []
    for kind in graph.input_types:
        if kind.dtype.is_float:
            numbers = rng.choice(np.array(SPECIAL), kind.shape)
        elif kind.dtype is DType.BOOL:
            numbers = rng.integers(0, 2, kind.shape)
        else:
            info = np.iinfo(kind.dtype.numpy)
            numbers = rng.choice(np.array([0, 1, 3, 8, info.max, info.min]), kind.shape)
        made.append(np.asarray(numbers).astype(kind.dtype.numpy))
    return made


def check_on_special_numbers(before: Graph, after: Graph, close: bool) -> None:
    """Two graphs compute the same of any number, NaN and infinities included."""
    for seed in range(8):
        inputs = special_inputs(before, seed)
        for wanted, found in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
            if close:
                np.testing.assert_allclose(found, wanted, rtol=1e-12)
            else:
                np.testing.assert_array_equal(found, wanted)
                if wanted.dtype.kind == "f":
                    known = ~np.isnan(wanted)
                    signs = np.signbit(found) == np.signbit(wanted)
                    assert signs[known].all()
