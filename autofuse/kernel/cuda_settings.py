"""Launch settings of CUDA kernels, as passes and the printer read them from `Kernel.facts`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from autofuse.kernel.ir import Kernel
from autofuse.ops.types import AutofuseError

WARP = 32
MOST_THREADS = 1024
CHOICES: dict[str, tuple[int | str | bool, ...]] = {
    "vector": (1, 2, 4, 8),
    "grid": ("one", "stride"),
    "reduce": ("", "warp", "block", "split", "barrier"),
    "keep": ("registers", "shared", "reread"),
    "transpose": (False, True),
}


class LaunchError(AutofuseError):
    """A launch setting that no CUDA kernel can have."""


@dataclass(frozen=True, slots=True)
class Settings:
    """threads: of a block. tile: items that a block takes at once (0: a vector per thread).
    vector: neighbouring items of one thread, stored together. grid: whether blocks run one
    iteration each ("one") or any number ("stride"). reduce: who folds a row ("": a block; a column
    then is folded by one thread). rows: of one block when warps fold (0: one per warp). keep: where
    a row stays between passes. unroll: of serial loops (0: the compiler's choice). blocks: wanted
    on a multiprocessor (0: any number). parts: blocks that share a row when it is split (0: as many
    as its length asks for). transpose: strided reads through a shared tile."""

    threads: int = 256
    tile: int = 0
    vector: int = 1
    grid: str = "stride"
    reduce: str = ""
    rows: int = 0
    keep: str = "shared"
    unroll: int = 0
    blocks: int = 0
    parts: int = 0
    transpose: bool = False

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // WARP


_NUMBERS = ("threads", "tile", "vector", "rows", "unroll", "blocks", "parts")


@lru_cache(maxsize=1024)
def _settings(facts: tuple[tuple[str, int | str | bool], ...]) -> Settings:
    known = {k: v for k, v in facts if k in Settings.__dataclass_fields__}
    for name, value in known.items():
        choices = CHOICES.get(name)
        if choices is not None and value not in choices:
            raise LaunchError(f"launch setting {name}={value!r} is none of {choices}")
        if name in _NUMBERS and (isinstance(value, bool) or int(value) < 0):
            raise LaunchError(f"launch setting {name}={value!r} is not a count")
    made = Settings(**known)  # type: ignore[arg-type]  # checked above
    if made.threads < WARP or made.threads % WARP or made.threads > MOST_THREADS:
        raise LaunchError(f"a block of {made.threads} threads is not 32, 64, ... or {MOST_THREADS}")
    return made


def settings(kernel: Kernel) -> Settings:
    """The settings of a kernel, defaults where it has none; raises LaunchError on others."""
    return _settings(kernel.facts)
