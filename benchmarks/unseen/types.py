"""What a program from outside is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.graph.types import Graph

Call = Callable[[], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Made:
    """A program ready to be tuned: its graph, an array for each input that is no constant, and one
    for each that is, by name. `peers` make, by name, a call of the same program in its own system
    that returns arrays on the host once they are there."""

    graph: Graph
    arguments: tuple[np.ndarray, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    peers: Mapping[str, Callable[[], Call]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """One program: `package` is the distribution or repository that has it; `needs` the modules
    that must be there, `folder` where the repository must have been fetched to. `drawn`: of the set
    of the final table, by which nothing was mended."""

    name: str
    kind: str
    package: str
    needs: tuple[str, ...]
    make: Callable[[], Made]
    drawn: bool = False
    folder: Path | None = None

    @property
    def absent(self) -> tuple[str, ...]:
        """The modules, and the repository, that are not here."""
        missing = tuple(name for name in self.needs if not _is_here(name))
        if self.folder is None or self.folder.exists():
            return missing
        return (*missing, f"{self.package} of scripts/fetch_programs")


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def module(name: str) -> Any:
    """A module of somebody else's, imported when its program is made."""
    return import_module(name)
