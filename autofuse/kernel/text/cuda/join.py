"""The CUDA text by which the last block with a part of some sums adds all parts up."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.cuda.shape import Team
from autofuse.kernel.ir.types import Join
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.dialects import CUDA


def join_text(stmt: Join, text: Spell, team: Team) -> Iterator[str]:
    """Each part is left in global memory, and in the end added up in the order of parts, so that
    sums are the same every time."""
    slot, part, last = text(stmt.slot), text(stmt.part), stmt.last.name
    count, target = stmt.rows * stmt.columns, stmt.target
    every = f"for (int32_t i = {team.place}; i < {count}; i += {team.size})"
    own = f"i / {stmt.columns} * {target.outer} + i % {stmt.columns}"
    own = f"{target.buffer}[{text(target.start)} + {own}]"
    place = f"{stmt.work}[((int64_t)({slot}) * {stmt.parts} + {{}}) * {stmt.room} + i]"
    yield f"bool {last} = true;"
    yield f"if ({text(stmt.cut)}) {{"
    yield f"  {every} {place.format(f'({part})')} = {own};"
    yield f"  {last} = af_is_last({stmt.tickets}, {slot}, {stmt.parts});"
    yield f"  if ({last}) {every} {{"
    yield f"    {CUDA.types[stmt.dtype]} sum = 0;"
    yield "    #pragma unroll"
    reading = place.format("p").replace("[", " + (", 1)[:-1] + ")"
    yield f"    for (int32_t p = 0; p < {stmt.parts}; p++) sum += __ldcg({reading});"
    yield f"    {own} = sum;"
    yield "  }"
    yield f"  {team.sync}"
    yield "}"
