"""In how many parts the terms of a product may be summed at the same time, on every device."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.plan.parameters import (
    COLUMN_BLOCK,
    MICRO,
    PREPACK,
    ROW_BLOCK,
    SPLIT,
    TAIL,
    TERM_BLOCK,
)
from autofuse.plan.types import Setting
from search_spaces.tile_facts import TileFacts

# Terms that each part has at least, and parts for each worker at most: what is summed twice is
# written and read once more.
PART_TERMS, PER_WORKER = 256, 4


def split_options(
    facts: TileFacts, made: Mapping[str, Setting], workers: int
) -> tuple[Setting, ...]:
    """The likely best first, for so many threads or multiprocessors; none where the blocks of rows
    and columns that were chosen keep them busy."""
    height = int(made[ROW_BLOCK.name])
    width = int(made.get(COLUMN_BLOCK.name, 0)) or facts.columns
    blocks = facts.batch * -(-facts.rows // height) * -(-facts.columns // width)
    busy = blocks >= 2 * workers or blocks % workers == 0
    if busy or facts.local or made.get(PREPACK.name):
        return ()
    most = PER_WORKER * workers // blocks
    fits = [int(parts) for parts in SPLIT.choices if _fits(facts, int(parts), most)]

    def turns(parts: int) -> float:
        return -(-blocks * parts // workers) / parts

    options: list[int] = sorted([1, *fits], key=lambda parts: (turns(parts), parts))
    return tuple(options) if fits else ()


def tail_options(
    facts: TileFacts, made: Mapping[str, Setting], wave: int, meeting: int
) -> tuple[Setting, ...]:  # fmt: skip
    """Parts of the tiles that do not fill a wave of so many blocks, the likely best first; none
    where all waves are full, blocks are no single tiles, the parts would be more than a wave again,
    or meeting takes longer than what is saved: a part leaves its sums and the last one reads them
    all, each in the time of `meeting` terms."""
    rows, columns = map(int, str(made[MICRO.name]).split("x"))
    columns = columns * 4 // facts.itemsize
    height, width = int(made[ROW_BLOCK.name]), int(made.get(COLUMN_BLOCK.name, 0)) or facts.columns
    single = height <= rows and width <= columns and not made.get(TERM_BLOCK.name)
    if facts.local or not single or int(made.get(SPLIT.name, 1)) > 1:
        return ()
    rest = facts.batch * -(-facts.rows // height) * -(-facts.columns // width) % wave
    some = (p for p in TAIL.choices if p > 1 and rest * p <= wave)
    found = [p for p in some if facts.terms >= p * PART_TERMS]

    def terms(parts: int) -> float:
        return facts.terms / parts + (meeting * (parts + 1) if parts > 1 else 0)

    options = sorted((1, *found), key=terms)
    return tuple(options) if rest and options[0] > 1 else ()


def _fits(facts: TileFacts, parts: int, most: int) -> bool:
    even = any(extent % parts == 0 for extent in facts.loops)
    return even and 1 < parts <= most and facts.terms >= parts * PART_TERMS
