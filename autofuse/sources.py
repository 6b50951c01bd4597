"""What a command line calls a source: a prefix or a suffix says which front end reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph

Loader = Callable[[str], Graph]


# Front ends are imported when they are asked for: a command that needs no graph, or another kind
# of graph, should not pay for them.


def _from_zoo(name: str) -> Graph:
    from autofuse.zoo import zoo_graph

    workload, _, size = name.partition(":")
    return zoo_graph(workload, size or "default")


def _from_json(path: str) -> Graph:
    from autofuse.frontends.jsonfile import load

    return load(path)


def _from_exported(path: str) -> Graph:
    from autofuse.frontends.torch_export import load_exported

    return load_exported(path)


def _from_factory(text: str) -> Graph:
    from autofuse.frontends.torch_export import load_factory

    return load_factory(text)


# A prefix ends with a colon, and its loader is given what comes after it; a suffix begins with a
# dot, and its loader is given the path of a file that exists; where it ends with a colon too, the
# path and the name after the last colon.
SOURCES: dict[str, Loader] = {
    "zoo:": _from_zoo,
    ".json": _from_json,
    ".pt2": _from_exported,
    ".py:": _from_factory,
}


def load_source(text: str) -> tuple[str, Graph]:
    """A workload's name and graph from what SOURCES knows: `zoo:NAME[:SIZE]`, `model.json`,
    `model.py:factory`, ...

    Files whose suffix nobody claims are read as JSON graph files, whatever they are called.
    Raises AutofuseError for an unknown name, a missing or malformed file.
    """
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
