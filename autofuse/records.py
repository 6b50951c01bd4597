"""What the tuning database keeps and the report reads: plain frozen records, no behaviour.

Times are microseconds (`_us`) for runs and seconds (`_s`) for tuning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from autofuse.errors import Blame as Blame


class FailureKind(Enum):
    """Why a candidate has no time."""

    UNSUPPORTED = "unsupported"
    COMPILE = "compile"
    LAUNCH = "launch"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    message: str
    blame: Blame = Blame.CANDIDATE


# Microseconds that a plan takes at least where a gap is worked out.
_LEAST_US = 1e-6
CHECKED, UNVERIFIED, WRONG = "checked", "not verified", "wrong"


@dataclass(frozen=True, slots=True)
class Trust:
    """What is known of a program before it serves: CHECKED against the reference, UNVERIFIED or
    WRONG, and why. `check_s` are the seconds that this took now; none where it was known."""

    state: str
    why: str = ""
    check_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.state}: {self.why}" if self.why else self.state


@dataclass(frozen=True, slots=True)
class Timing:
    """Statistics of one sampling run; `cache` is "cold" or "warm", `stopped` the rule that ended it
    ("race": dropped, its best rival being faster; "noise", "enough", "samples", "wall")."""

    n: int
    min_us: float
    q1_us: float
    median_us: float
    q3_us: float
    mean_us: float
    stdev_us: float
    cache: str
    stopped: str
    mode: str = "call"


@dataclass(frozen=True, slots=True)
class Environment:
    """A device fingerprint: a time is reusable only if every `must` pair is equal; it is stale
    (usable, marked) if a `stale` pair differs. Pairs are sorted."""

    device: str
    must: tuple[tuple[str, str], ...]
    stale: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds spent, by where they went."""

    codegen: float = 0.0
    compile: float = 0.0
    measure: float = 0.0
    sampler: float = 0.0

    @property
    def total(self) -> float:
        return self.codegen + self.compile + self.measure + self.sampler

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.codegen + other.codegen,
            self.compile + other.compile,
            self.measure + other.measure,
            self.sampler + other.sampler,
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured (or failed) candidate of a workload: exactly one of timing, failure is set.

    `candidate` is Candidate.to_json text; `groups` are the group digests of its plan in order.
    `code` is the digest of the code that ran (`Backend.plan_code`), "" where it is unknown.
    """

    workload: str
    candidate: str
    candidate_digest: str
    origin: str
    kernels: int
    groups: tuple[str, ...]
    timing: Timing | None
    failure: Failure | None
    max_rel_error: float | None
    cost: Cost
    stage: str = "search"
    code: str = ""


@dataclass(frozen=True, slots=True)
class KernelMeasurement:
    """One measured (or failed) kernel: exactly one of timing, failure is set.

    `group` is the group digest, `launch` the canonical text of its launch configuration, `cache`
    ("cold" or "warm") the state it was to be timed in, which a timing's own state equals, `code`
    the digest of the code that ran (`Backend.codes`), "" where it is unknown.
    `bound_us` is its lower bound; `facts` are named finite numbers, such as registers.
    """

    group: str
    launch: str
    cache: str
    code: str
    timing: Timing | None
    failure: Failure | None
    max_rel_error: float | None
    cost: Cost
    bound_us: float | None
    facts: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """An interleaved comparison: time ratio baseline / best with its bootstrap interval.

    `outcome` is "faster", "slower" or "tie" for the best against the other."""

    other: str
    other_us: float
    best_us: float
    ratio: float
    low: float
    high: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Proof:
    """How far from the best a search's plan can be, in microseconds and in fractions (0.02 is 2 %);
    None is what nobody has proved.

    There are two gaps:

    * the gap of this search, `search_gap`, is 1 - `search_floor_us` / `planned_us`, and 1 where
      there is no plan. `planned_us` adds up the times of the planned kernels. No plan of the
      kernels that the search enumerated, at the launches that it tried, is below the floor;
      `certificate` says whether that holds for the "whole" graph or "per window";
    * the gap to the bound, `gap_of`, is 1 - `bound_us` / the time of a plan. No plan whatever is
      below the bound (`cost.least.graph_bound_us`), be it of kernels or launches that were never
      tried, as far as the calibrated peaks hold.

    `residual_us` is the plan's end-to-end time less the sum of its kernels' times. The database
    keeps neither `planned_us` nor `certificate`, and the floor with events only."""

    search_floor_us: float | None = None
    search_gap: float | None = None
    residual_us: float | None = None
    bound_us: float | None = None
    planned_us: float | None = None
    certificate: str | None = None

    def searched(self, search_floor_us: float, planned_us: float | None) -> Proof:
        """This proof with another floor for another plan. The floor is never above the plan."""
        if planned_us is None:
            return replace(self, search_floor_us=search_floor_us, planned_us=None, search_gap=1.0)
        search_floor_us = min(search_floor_us, planned_us)
        gap = 1 - search_floor_us / max(planned_us, _LEAST_US)
        return replace(self, search_floor_us=search_floor_us, planned_us=planned_us, search_gap=gap)

    def gap_of(self, us: float | None) -> float | None:
        """The fraction of a time that no plan whatever can save; 0 where it is below the bound."""
        if self.bound_us is None or us is None or not us > 0:
            return None
        return max(0.0, 1 - self.bound_us / us)


UNPROVED = Proof()


@dataclass(frozen=True, slots=True)
class Event:
    """The incumbent after some spending, and what was proved by then: one row per improvement (and
    one at the end)."""

    trial: int
    spent: Cost
    best_us: float
    candidate_digest: str
    origin: str
    proof: Proof = UNPROVED

    @property
    def bound_gap(self) -> float | None:
        """How far the incumbent may be above the best plan there is."""
        return self.proof.gap_of(self.best_us)


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How a tuning session ended; `baselines` maps a baseline name to its candidate digest, and
    `proof` is of the best plan. `finished`: nobody stopped it."""

    strategy: str
    seed: int
    budget_s: float
    spent: Cost
    trials: int
    measured: int
    failed: tuple[tuple[str, int], ...]
    best_digest: str
    baselines: tuple[tuple[str, str], ...]
    verdicts: tuple[Verdict, ...]
    finished: bool
    proof: Proof = UNPROVED


@dataclass(frozen=True, slots=True)
class Trip:
    """The trips of one value through memory per call of a plan: bytes written by its kernel and
    read by its `readers`, which are kernels.

    `place` names it: its node and, inside a host loop, the loop's; `source` says that it is
    an input or constant of the graph, which no plan writes."""

    place: str
    op: str
    type: str
    source: bool
    written_bytes: int
    read_bytes: int
    readers: int

    @property
    def bytes(self) -> int:
        return self.written_bytes + self.read_bytes


@dataclass(frozen=True, slots=True)
class Account:
    """What a plan costs per call, apart from time. The bytes of `trips` add up to all bytes moved.
    `recomputed` counts the additional computations of nodes in more than one kernel,
    `recomputed_flops` their arithmetic; `peak_bytes` are intermediates alive at once."""

    kernels: int
    launches: int
    read_bytes: int
    written_bytes: int
    flops: float
    recomputed: int
    recomputed_flops: float
    peak_bytes: int
    trips: tuple[Trip, ...]

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A graph the database knows: `text` is its canonical text, `name` what people call it."""

    digest: str
    text: str
    name: str
    nodes: int


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A stored tuning session; `started` and `ended` are ISO 8601 UTC times.

    `ended` and `result` are None while it runs, and for ever if it was killed."""

    id: int
    environment: Environment
    workload: str
    strategy: str
    seed: int
    budget_s: float
    started: str
    ended: str | None
    result: SessionResult | None


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The best measurement known; `stale` names the fingerprint keys that differ since (sorted),
    and "code" among them where other code would be compiled now."""

    measurement: Measurement
    stale: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """What final comparisons of sessions that have ended say of some candidates: `winner` is served
    now and was timed in one of them; `losers` (digests) were no faster than it, or than one that it
    beat; `verdicts` are the winner's, by the digest of the baseline."""

    winner: Measurement
    losers: frozenset[str]
    verdicts: tuple[tuple[str, Verdict], ...]
