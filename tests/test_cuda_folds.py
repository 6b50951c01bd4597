"""Folds over the threads of a CUDA block: the threads meet once in each."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import Emulated, EmulatorError
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.types import LaunchConfig
from benchmarks.sass import code_facts, kernel_code
from tests.support.cuda_settings_cases import COLUMN, KEEP, ROW, reduction, softmax
from tests.support.one_kernel import one_kernel

SUMS = canonical(reduction("reduce_sum", (12, 128), (1,), "f32"))
COLUMNS = canonical(COLUMN["columns"])


def text_of(graph: Graph, threads: int = 64) -> str:
    launch = LaunchConfig.of(threads=threads, reduce="block", keep="registers")
    return one_kernel(canonical(graph), "k", launch).text


def sums(text: str, graph: Graph, axis: int) -> None:
    """Sums of squares by few blocks, each of which folds several times."""
    x = np.arange(np.prod(graph.input_types[0].shape), dtype=np.float32) % 7
    x = x.reshape(graph.input_types[0].shape)
    out = np.empty(graph.output_types[0].shape, np.float32)
    Emulated(text).launch("k", 2, 64, [x, out])
    assert (out == (x * x).sum(axis)).all()


@pytest.mark.parametrize(("graph", "axis"), [(SUMS, 1), (COLUMNS, 0)])
def test_folds_that_take_no_turns_are_caught(graph: Graph, axis: int) -> None:
    """One barrier is enough because two folds one after another use different memory."""
    text = text_of(graph)
    sums(text, graph, axis)
    assert text.count("turn ^= 1") == 1
    with pytest.raises(EmulatorError, match="depends on the order of threads"):
        sums(text.replace("turn ^= 1", "turn"), graph, axis)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("threads", [256, 96])
def test_a_fold_has_one_barrier(threads: int, arch: str) -> None:
    cubin, log = compile_cubin(text_of(softmax(300, 768), threads), arch)
    assert log == ""
    assert code_facts(kernel_code(cubin, "k")).barriers == 2, "a maximum and a sum"


def test_rows_meet_only_where_one_would_overwrite_another() -> None:
    """Folds keep the rows of a softmax apart; a row that one thread fills needs a barrier."""

    def text(name: str, keep: str) -> str:
        launch = LaunchConfig.of(threads=64, reduce="block", keep=keep)
        return one_kernel(canonical(ROW[name]), "k", launch).text

    def rows(text: str) -> str:
        return text[text.index("for (int32_t g") :]

    end = "      __syncthreads();\n    }\n  }\n}"
    assert all("__syncthreads" not in rows(text("softmax", keep)) for keep in KEEP)
    scan = text("scan", "shared")
    assert scan.count(end) == 1
    x = np.arange(540, dtype=np.float32).reshape(6, 90)
    out = np.empty_like(x)
    Emulated(scan).launch("k", 2, 64, [x, out])
    with pytest.raises(EmulatorError, match="depends on the order of threads"):
        Emulated(scan.replace(end, "    }\n  }\n}")).launch("k", 2, 64, [x, out])
