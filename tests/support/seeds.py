"""Which random cases the tests try: by default the same in every run, drawn anew when exploring.

`pytest --explore` (or AUTOFUSE_EXPLORE=1) draws one seed for the whole run and prints it;
`pytest --explore SEED` (or AUTOFUSE_EXPLORE=SEED) tries the same cases again. Property tests take
their examples from it, loops over seeds take theirs from `seeds`, and fuzzers find it in
AUTOFUSE_FUZZ_SEED unless that is set.
"""

from __future__ import annotations

import os
import random
from collections.abc import MutableMapping, Sequence

from hypothesis import is_hypothesis_test, seed, settings
from pytest import Config, Item

VARIABLE = "AUTOFUSE_EXPLORE"
FUZZ_VARIABLE = "AUTOFUSE_FUZZ_SEED"
# What the option and the variable hold to ask for a seed of its own; no drawn seed is so small.
ANEW = "1"
LARGEST = 2**31

# Equal runs try equal examples; compiling has no place under a deadline.
settings.register_profile("autofuse", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", derandomize=False, deadline=None, database=None)


def begin(config: Config) -> None:
    """Choose the profile, and the seed where none is given. The processes of pytest-xdist must
    try the same cases as the one that starts them: they inherit the variable."""
    choose(config.getoption("--explore"), os.environ)
    settings.load_profile("autofuse" if explored() is None else "explore")


def choose(option: str | None, variables: MutableMapping[str, str]) -> None:
    """Put the seed of this run into the variables if it is to explore."""
    wanted = option or variables.get(VARIABLE)
    if not wanted:
        return
    if not wanted.isdecimal() or int(wanted) >= LARGEST:
        raise ValueError(f"{VARIABLE} and --explore take a whole number below 2^31, not '{wanted}'")
    found = str(random.SystemRandom().randrange(2, LARGEST)) if wanted == ANEW else wanted
    variables[VARIABLE] = found
    variables.setdefault(FUZZ_VARIABLE, found)


def explored() -> int | None:
    """The seed of this run, or None where every run tries the same."""
    found = os.environ.get(VARIABLE)
    return int(found) if found else None


def seeds(count: int) -> Sequence[int]:
    """As many seeds for a loop over random cases: 0, 1, ... or, exploring, drawn anew."""
    return drawn(count, explored())


def examples(most: int) -> int:
    """How many cases a property has whose cases take long: runs that explore, as one does every
    night, try all, others a third."""
    return most if explored() is not None else max(1, most // 3)


def drawn(count: int, explored: int | None) -> Sequence[int]:
    """`count` different seeds that follow from the one explored; from None the first numbers."""
    if explored is None:
        return range(count)
    return random.Random(explored).sample(range(LARGEST), count)


def seed_property_tests(items: Sequence[Item]) -> None:
    """Exploring, every property test takes its examples from the seed of the run."""
    found = explored()
    for item in items:
        function = getattr(item, "obj", None)
        if found is not None and is_hypothesis_test(function):
            seed(found)(function)


def said() -> str:
    """How to try the same cases again, or "" where that is so anyway."""
    found = explored()
    return "" if found is None else f"exploring: repeat it with pytest --explore {found}"
