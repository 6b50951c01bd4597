"""What a whole network is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Built:
    """A network in evaluation mode, and the tensors of a call."""

    model: nn.Module
    args: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """One network: `kind` is "vision", "language" or "speech"; `origin` names what it is built from
    ("transformers 5: ResNetConfig"); `build` makes it for so many items at once."""

    name: str
    kind: str
    origin: str
    build: Callable[[int], Built]
    needs: tuple[str, ...] = ("transformers",)

    @property
    def absent(self) -> tuple[str, ...]:
        """The modules that are not here."""
        return missing(self.needs)


def missing(modules: Iterable[str]) -> tuple[str, ...]:
    """Those of some modules that are not here."""
    return tuple(name for name in modules if find_spec(name) is None)
