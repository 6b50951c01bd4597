"""What every kind of soak gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Round:
    """`done`: how often the thing was done (kills, rows, builds, ...); `problems`: one sentence
    and its evidence for everything that was lost or went wrong; `notes`: figures that were
    taken."""

    done: int
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# Plays one round in an empty folder; equal seeds draw equal moments and cases.
Play = Callable[[Path, int], Round]


@dataclass(frozen=True, slots=True)
class Kind:
    """`unit` is what a round counts, `doc` what is done and what must hold."""

    name: str
    unit: str
    doc: str
    play: Play
