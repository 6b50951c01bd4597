"""A hunt for numbers that rules of simplification do not hold for, and what it prints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.simplify_hunt import check_rule, check_tree

# A rule, and what makes its example; see `check_rule`.
Example = tuple[str, Callable[..., Any]]


def hunt(examples: Sequence[Example], count: int, seed: int, share: float) -> int:
    """How many examples, mutants and drawn trees became something else; each is printed."""
    tried, wrong = 0, 0
    for rule, made in examples:
        changed, found = check_rule(rule, made, seed=seed, mutants_share=share)
        tried, wrong = tried + changed, wrong + len(found)
        for one in found:
            print(one, file=sys.stderr, flush=True)
    print(f"examples and mutants: {tried} changed, {wrong} wrong")
    rules: Counter[str] = Counter()
    for number in range(seed, seed + count):
        steps, said = check_tree(number)
        rules.update(steps)
        if said is not None:
            wrong += 1
            print(f"tree {number}: {said}", file=sys.stderr, flush=True)
    print(f"{count} trees: {sum(rules.values())} steps of {len(rules)} rules; {wrong} wrong in all")
    return wrong
