"""The CUDA text that copies operands of warpgroups in boxes: one thread asks for those of a run,
whose bytes the mbarrier of the stage counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofuse.kernel.ir.fragment import FragmentProduct
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.tile import BoxCopies
from autofuse.kernel.ir.types import Kernel, Param, TileProduct, statements
from autofuse.kernel.text.cuda.tile import Spell

NAMES = ("ta", "tb")


def boxes_alone(kernel: Kernel) -> bool:
    """Whether all that warpgroups multiply is copied in boxes: one thread arrives then, others have
    nothing to copy."""
    found = [s for s in statements(kernel.body) if isinstance(s, TileProduct | FragmentProduct)]
    own = [s for s in found if by_group(s.mma)]
    return bool(own) and all(isinstance(s, TileProduct) and all(s.boxes) for s in own)


def prefetched(params: Sequence[Param]) -> Iterator[str]:
    """What a kernel with tensor maps begins with."""
    maps = [p.name for p in params if p.role == "map"]
    if maps:
        asked = " ".join(f"af_prefetch_map(&{name});" for name in maps)
        yield f"  if (threadIdx.x == 0) {{ {asked} }}"


@dataclass(frozen=True)
class BoxText:
    """The boxes of a statement, whose right operand is `behind` so many elements in a stage."""

    stmt: TileProduct
    text: Spell
    behind: int

    def coordinates(self) -> Iterator[str]:
        """Where the first box of each operand begins."""
        for name, box in zip(NAMES, self.stmt.boxes, strict=True):
            if box is not None:
                parts = (f"{name}{k} = {self.text(at)}" for k, at in enumerate(box.at))
                yield f"const int32_t {', '.join(parts)};"

    @property
    def nbytes(self) -> int:
        """Bytes that arrive for a run."""
        return sum(box.count * box.nbytes for box in self.stmt.boxes if box is not None)

    def lines(self, stage: str, ready: str) -> Iterator[str]:
        """The boxes of the run from term `begin` on, to a stage."""
        starts = zip(NAMES, self.stmt.boxes, (0, self.behind), strict=True)
        for name, box, start in starts:
            if box is not None:
                yield from self.boxes(name, box, f"{stage} + {start}", ready)

    def boxes(self, name: str, box: BoxCopies, to: str, ready: str) -> Iterator[str]:
        at = [f"{name}{k}" for k in range(len(box.at))]
        at[box.term] += " + begin"
        several = box.count > 1
        if several:
            at[box.row] += f" + n * {box.rows}"
            yield "#pragma unroll"
            yield f"for (int32_t n = 0; n < {box.count}; n++)"
            to += f" + n * {box.apart}"
        call = f"af_copy_box_{len(at)}({to}, &{box.name}, {', '.join(at)}, {ready});"
        yield f"{'  ' * several}{call}"
