"""Classes of kernels of which one did not end, on a device that a hang takes with it: nothing else
of such a class is run in this session."""

from __future__ import annotations

from dataclasses import dataclass, field

from autofuse.plan.parameters import MAPS, MMA, NO_MMA, PINGPONG
from autofuse.plan.types import Candidate

# An instruction class, and the roles of its blocks: whether groups take turns, and boxes.
KernelClass = tuple[str, bool, bool]


def classes_of(candidate: Candidate) -> frozenset[KernelClass]:
    """Those of a plan's kernels on tensor cores."""
    own = (
        (str(MMA.of(each)), bool(PINGPONG.of(each)), bool(MAPS.of(each)))
        for each in candidate.all_launches
    )
    return frozenset(each for each in own if each[0] != NO_MMA)


@dataclass
class Quarantine:
    """What did not end, if `final`: of a device that has to be started anew after each hang."""

    final: bool = False
    classes: set[KernelClass] = field(default_factory=set)

    def note(self, candidate: Candidate) -> None:
        """That it did not end."""
        if self.final:
            self.classes |= classes_of(candidate)

    def refusal(self, candidate: Candidate) -> str:
        """Why a plan is not run, in a sentence; "" where it may be."""
        found = sorted(classes_of(candidate) & self.classes)
        if not found:
            return ""
        name, turns, boxes = found[0]
        roles = ", groups that take turns" * turns + ", boxes" * boxes
        return f"not run: a kernel of its class ({name}{roles}) did not end in this session"
