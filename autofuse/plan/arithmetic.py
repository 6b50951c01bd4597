"""What a request lets kernels do with the arithmetic of a program.

By default a kernel computes what IEEE 754 and the order of the program allow: each operation as it
is written, rounded in its dtype or better (a product and a sum may be one operation), with
functions and quotients that err by at most a few units in the last place, and sums over an axis in
any order. Relaxed, arithmetic may be reassociated, quotients become products with reciprocals, and
signs of zeros are no matter: (x + y) - x may be y.
"""

from __future__ import annotations

from autofuse.errors import AutofuseError
from autofuse.plan.parameters import MATH, RELAXED
from autofuse.plan.types import Candidate, LaunchConfig

DEFAULT_MATH = "default"
MATHS = (DEFAULT_MATH, RELAXED)


def check_math(math: str) -> None:
    """Raises AutofuseError for arithmetic that nobody knows."""
    if math not in MATHS:
        raise AutofuseError(f"math is one of {', '.join(MATHS)}, not '{math}'")


def is_relaxed(launch: LaunchConfig) -> bool:
    """Whether a kernel is launched so that its arithmetic may be changed, or one inside it."""
    return any(one.get(MATH.name, MATH.default) == RELAXED for one in launch.everywhere())


def not_asked(candidate: Candidate, math: str) -> str:
    """That a plan changes arithmetic though that was not asked for, in a sentence; "" where it does
    not, or it was."""
    if math == RELAXED or not any(map(is_relaxed, candidate.launches)):
        return ""
    return "its kernels change arithmetic, which is asked for by math='relaxed'"
