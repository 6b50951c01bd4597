"""In how many parts the terms of a product may be summed at the same time, on every device."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.kernel.tiles.tail import part_terms
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
# The most numbers of parts that are offered of a tail.
MOST_TAILS = 4


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


def split_time(tiles: int, sms: int, terms: int, parts: int, meeting: int) -> float:
    """As `busiest`, where all tiles are in parts that a second kernel adds up."""
    if parts == 1:
        return busiest(tiles, sms, terms, parts, meeting)
    turns = math.ceil(tiles * parts / sms)
    return turns * (terms / parts + meeting) + tiles / sms * (parts + 1) * meeting


def tail_options(
    facts: TileFacts, made: Mapping[str, Setting], sms: int, meeting: int
) -> tuple[Setting, ...]:
    """Parts of the tiles that are no whole turn of so many multiprocessors, the likely best first;
    none where all turns are whole, blocks are no single tiles, or meeting, in the time of so many
    terms, takes longer than what is saved."""
    rows, columns = map(int, str(made[MICRO.name]).split("x"))
    columns = columns * 4 // facts.itemsize
    height, width = int(made[ROW_BLOCK.name]), int(made.get(COLUMN_BLOCK.name, 0)) or facts.columns
    single = height <= rows and width <= columns and not made.get(TERM_BLOCK.name)
    if facts.local or not single or int(made.get(SPLIT.name, 1)) > 1:
        return ()
    tiles = facts.batch * -(-facts.rows // height) * -(-facts.columns // width)
    options = sorted(
        tail_parts(facts.terms), key=lambda parts: busiest(tiles, sms, facts.terms, parts, meeting)
    )
    return tuple(options[:MOST_TAILS]) if options[0] > 1 else ()


def tail_parts(terms: int) -> tuple[int, ...]:
    """In how many parts a tile of so many terms may be summed; 1 is first."""
    return tuple(p for p in TAIL.choices if p == 1 or terms >= p * PART_TERMS)


def busiest(tiles: int, sms: int, terms: int, parts: int, meeting: int) -> float:
    """How many terms of a tile the multiprocessor has that has most of them, where those tiles that
    are no whole turn are in parts: each part leaves its sums, and the last one reads them all."""
    whole, rest = divmod(tiles, sms)
    if parts == 1 or not rest:
        return (whole + (rest > 0)) * terms
    cut = math.ceil(rest * parts / sms)
    return whole * terms + cut * (part_terms(terms, parts) + meeting) + parts * meeting


def _fits(facts: TileFacts, parts: int, most: int) -> bool:
    even = any(extent % parts == 0 for extent in facts.loops)
    return even and 1 < parts <= most and facts.terms >= parts * PART_TERMS
