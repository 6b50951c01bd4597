"""Graphs and models from files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.json.file import load as load_graph
from autofuse.frontends.onnx.dims import OpenDims
from autofuse.graph.types import Graph

if TYPE_CHECKING:
    from autofuse.interop.onnx.model import OnnxModel


def load(
    path: str | Path, dims: OpenDims | None = None, values: Mapping[str, Any] | None = None
) -> Graph | OnnxModel:
    """The graph in a graph file, or the OnnxModel in a `.onnx` file.

    `dims` are the sizes that a model leaves open, by name or as `input[axis]`; `values` are of
    inputs that are to be known (what decides shapes), which it then no longer has. Raises
    AutofuseError, one sentence naming the file and the node.
    """
    if Path(path).suffix != ".onnx":
        if dims or values:
            raise AutofuseError(f"{path} is a graph file, whose sizes are known")
        return load_graph(path)
    # What runs a model takes long to import, and a graph file does not need it.
    from autofuse.frontends.onnx.read import onnx_file
    from autofuse.interop.onnx.model import OnnxModel

    with onnx_file(path) as file:
        given = {name: np.asarray(array) for name, array in (values or {}).items()}
        return OnnxModel(file, dims or {}, given)
