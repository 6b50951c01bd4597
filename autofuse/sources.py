"""What a command line calls a source: a zoo name or the path of a graph file."""

from __future__ import annotations

from pathlib import Path

from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError


def load_source(text: str) -> tuple[str, Graph]:
    """A workload's name and graph from `zoo:NAME[:SIZE]` or the path of a JSON graph file.

    Raises AutofuseError for an unknown zoo name or size, a missing or malformed file.
    """
    # Imported late: a command that needs no graph should not pay for the tracer.
    if text.startswith("zoo:"):
        from autofuse.zoo import zoo_graph

        name, _, size = text.removeprefix("zoo:").partition(":")
        return text, zoo_graph(name, size or "default")
    path = Path(text)
    if not path.exists():
        raise AutofuseError(f"no such file: {text} (or did you mean zoo:NAME?)")
    from autofuse.frontends.jsonfile import load

    return path.stem, load(path)
