"""Files read in a process of their own: what they ask for too much of is one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.errors import AutofuseError
from autofuse.frontends.confined import confined
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.zoo import zoo_graph

GRAPH = zoo_graph("softmax", "small")


def asked(read: Callable[[], Any], **options: int) -> tuple[Graph, Mapping[str, np.ndarray]]:
    return confined("m.onnx", read, **options)


def test_graph_and_arrays_come_back_as_they_are() -> None:
    import ml_dtypes

    given = {
        "a": np.arange(7, dtype=np.int32), "b": np.ones((2, 3), ml_dtypes.bfloat16),
        "c": np.asarray(True), "d": np.zeros((0, 4), np.float32),
    }  # fmt: skip
    graph, arrays = asked(lambda: (GRAPH, given))
    assert digest(graph) == digest(GRAPH) and graph.input_names == GRAPH.input_names
    for name, array in given.items():
        assert arrays[name].dtype == array.dtype and np.array_equal(arrays[name], array)


def test_memory_has_an_end() -> None:
    with pytest.raises(AutofuseError, match=r"m\.onnx: reading it takes more than \d+ MiB"):
        asked(lambda: np.ones(1 << 40))


def endless() -> Any:
    while True:
        pass


def test_time_has_an_end() -> None:
    with pytest.raises(AutofuseError, match=r"m\.onnx: reading it takes more than 1 s"):
        asked(endless, seconds=1)


def test_whatever_ends_it_is_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AutofuseError, match="ended by SIGSEGV"):
        asked(lambda: os.kill(os.getpid(), 11))
    with pytest.raises(AutofuseError, match="cannot be read"):
        asked(lambda: 1 / 0)
    with pytest.raises(AutofuseError, match="no such thing"):
        asked(lambda: (_ for _ in ()).throw(AutofuseError("no such thing")))
    assert capfd.readouterr() == ("", "")


def test_a_model_is_read_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_models = pytest.importorskip("tests.support.onnx_models")  # needs onnx, an extra
    from autofuse.sources import read_source

    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_models.perceptron(batch=2).SerializeToString())
    found = read_source(str(path))
    assert found.constants["fc_weight"].shape == (12, 8)
    assert found.graph.input_types[0].shape == (2, 12)
