"""cache_hints: wide loads say whether what they read is read again.

Before: lane l < 64 {let a b = x[..]; m = max(m, a, b)}; lane k < 64 {let c d = x[..]; ..}
After:  lane l < 64 {let a b = x[..] again; m = ..}; lane k < 64 {let c d = x[..] once; ..}
Asked for by `hints`. The second-level cache then gives up first what nobody comes back for, such as
inputs that stream through, and last what all rows share or a later pass over the row reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.types import (
    Join,
    Kernel,
    LoadVector,
    Loop,
    LoopKind,
    Stmt,
    TileProduct,
    names_read,
)
from autofuse.ops.scalar import Lit

# Iterations of a loop that nothing is known of: many.
UNKNOWN = 1 << 40


def cache_hints(kernel: Kernel) -> Kernel:
    """Mark the wide loads of inputs."""
    if not settings(kernel).hints:
        return kernel
    sizes = {p.name: p.size for p in kernel.params if p.role == "in"}
    return replace(kernel, body=_Marker(sizes).block(kernel.body, 1, frozenset()))


@dataclass(frozen=True)
class _Marker:
    sizes: dict[str, int]

    def block(self, body: tuple[Stmt, ...], times: int, later: frozenset[str]) -> tuple[Stmt, ...]:
        """A body that is run `times` times in all, after which `later` buffers are read again."""
        done: list[Stmt] = []
        for stmt in reversed(body):
            match stmt:
                case LoadVector(syms, buffer) if buffer in self.sizes:
                    # Lanes and rows are counted up to whole blocks.
                    once = times * len(syms) < 2 * self.sizes[buffer] and buffer not in later
                    done.append(replace(stmt, keep="once" if once else "again"))
                case Loop():
                    inner = times * _most(stmt)
                    done.append(replace(stmt, body=self.block(stmt.body, inner, later)))
                    later |= names_read(stmt)
                case TileProduct() | Join():
                    done.append(stmt)
                    later |= names_read(stmt)
                case _:
                    done.append(stmt)
        return tuple(reversed(done))


def _most(loop: Loop) -> int:
    """Iterations of a loop, at most; those of a `when` body are no more than those around it."""
    if loop.kind is LoopKind.WHEN:
        return 1
    if isinstance(loop.extent, Lit):
        return int(loop.extent.value)
    return UNKNOWN if loop.var.extent is None else loop.var.extent
