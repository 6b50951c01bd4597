"""What a command line calls a source: a prefix or a suffix says which front end reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph

Loader = Callable[[str], Graph]
# Sizes that a model leaves open, one number each, and the elements of inputs that decide shapes.
GivenSizes = Mapping[str, Sequence[int]]
# The path of a file and sizes: a graph, and the arrays that its constant inputs have by name.
ModelLoader = Callable[[str, GivenSizes], tuple[Graph, Mapping[str, np.ndarray]]]


# What importing torch takes, beside what reading does.
_TORCH_BYTES, _TORCH_S = 3 << 30, 15


@dataclass(frozen=True)
class GivenSource:
    """A workload's name and graph; `constants` are the arrays that come with it, by input."""

    name: str
    graph: Graph
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)


# Front ends are imported when they are asked for: a command that needs no graph, or another kind
# of graph, should not pay for them.


def _from_zoo(name: str) -> Graph:
    from autofuse.zoo import zoo_graph

    workload, _, size = name.partition(":")
    return zoo_graph(workload, size or "default")


def _from_json(path: str) -> Graph:
    from autofuse.frontends.json.file import load

    return load(path)


def _from_exported(path: str) -> Graph:
    from autofuse.frontends.confined import confined

    def read() -> tuple[Graph, Mapping[str, np.ndarray]]:
        from autofuse.frontends.torch.export import load_exported

        return load_exported(path), {}

    return confined(path, read, _TORCH_BYTES, _TORCH_S)[0]


def _from_factory(text: str) -> Graph:
    from autofuse.frontends.torch.export import load_factory

    return load_factory(text)


def _from_onnx(path: str, sizes: GivenSizes) -> tuple[Graph, Mapping[str, np.ndarray]]:
    from autofuse.frontends.confined import confined

    def read() -> tuple[Graph, Mapping[str, np.ndarray]]:
        from autofuse.frontends.onnx.read import load_onnx

        found = load_onnx(path, sizes)
        return found.graph, found.weights

    return confined(path, read)


# A prefix ends with a colon, and its loader is given what comes after it; a suffix begins with a
# dot, and its loader is given the path of a file that exists; where it ends with a colon too, the
# path and the name after the last colon.
SOURCES: dict[str, Loader] = {
    "zoo:": _from_zoo,
    ".json": _from_json,
    ".pt2": _from_exported,
    ".py:": _from_factory,
}


# Files that hold weights, and may leave sizes open.
MODELS: dict[str, ModelLoader] = {".onnx": _from_onnx}


def load_source(text: str) -> tuple[str, Graph]:
    """A workload's name and graph from what SOURCES and MODELS know: `zoo:NAME[:SIZE]`,
    `model.json`, `model.py:factory`, `model.onnx`, ...

    Files whose suffix nobody claims are read as JSON graph files, whatever they are called.
    Raises AutofuseError for an unknown name, a missing or malformed file.
    """
    found = read_source(text)
    return found.name, found.graph


def read_source(text: str, sizes: GivenSizes | None = None) -> GivenSource:
    """As `load_source`, with what comes with the graph. `sizes` are for what a model leaves open;
    raises AutofuseError where it leaves nothing open."""
    path = Path(text)
    if path.suffix in MODELS and path.exists():
        return GivenSource(path.stem, *MODELS[path.suffix](text, sizes or {}))
    if sizes:
        raise AutofuseError(f"{text} leaves no sizes open, so there is no '{next(iter(sizes))}'")
    return GivenSource(*_known_sizes(text))


def _known_sizes(text: str) -> tuple[str, Graph]:
    prefix, colon, rest = text.partition(":")
    if colon and prefix + colon in SOURCES:
        return text, SOURCES[prefix + colon](rest)
    before, colon, name = text.rpartition(":")
    file = Path(before)
    if colon and file.suffix + colon in SOURCES and file.exists():
        return f"{file.stem}:{name}", SOURCES[file.suffix + colon](text)
    path = Path(text)
    if not path.exists():
        raise AutofuseError(f"no such file: {text} (or did you mean zoo:NAME?)")
    return path.stem, SOURCES.get(path.suffix, _from_json)(text)
