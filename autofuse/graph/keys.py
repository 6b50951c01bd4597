"""Keys of inputs and outputs: what arrays are called where they go by name."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Graph


def input_keys(graph: Graph) -> tuple[str, ...]:
    """One key per input: its name, or in0, in1, ... where names are missing or not unique."""
    return unique_keys(graph.input_names, "in")


def unique_keys(names: Sequence[str], prefix: str) -> tuple[str, ...]:
    """Names as they are, numbered with `prefix` instead where some are missing or repeat."""
    if len({*names, ""}) == len(names) + 1:
        return tuple(names)
    return tuple(f"{prefix}{k}" for k in range(len(names)))
