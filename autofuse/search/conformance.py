"""What every search strategy must do, on toys with no device; see `check_searcher`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.search.driver import RunResult, SearchStep, run
from autofuse.search.protocol import (
    Choices,
    Chooser,
    Option,
    Outcome,
    Problem,
    Proposal,
    Resumable,
    Searcher,
    SearcherFactory,
)

OPTIONS: tuple[Option, ...] = (1, 2, 4, 8)
Score = Callable[[Proposal], Outcome]


@dataclass(frozen=True)
class Grid:
    """`names` parameters of four options each; the key is the choices."""

    names: tuple[str, ...] = ("a", "b", "c")
    start: tuple[Mapping[str, Option], ...] = ({"a": 2, "b": 8, "c": 8}, {"b": 2})

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        return self.start

    def propose(self, choose: Chooser) -> Proposal:
        choices = tuple((name, choose(name, OPTIONS)) for name in self.names)
        return Proposal(",".join(f"{n}={o}" for n, o in choices), choices)


@dataclass(frozen=True)
class Conditional:
    """A space that depends on its first answer; under "fused" the order of x and y has no meaning,
    so two choice vectors may share a key, and one parameter is no choice at all."""

    start: tuple[Mapping[str, Option], ...] = ({"kind": "split"}, {"kind": "fused", "x": 4})

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        return self.start

    def propose(self, choose: Chooser) -> Proposal:
        choices: list[tuple[str, Option]] = []

        def ask(name: str, options: tuple[Option, ...]) -> Option:
            choices.append((name, choose(name, options)))
            return choices[-1][1]

        ask("version", ("v1",))
        if ask("kind", ("split", "fused", "library")) == "fused":
            pair = sorted([str(ask("x", OPTIONS)), str(ask("y", OPTIONS))])
            return Proposal(f"fused:{pair}:{ask('vector', (True, False))}", tuple(choices))
        return Proposal(f"{choices[-1][1]}:{ask('block', (64, 128))}", tuple(choices))


@dataclass(frozen=True)
class Single:
    """One point and nothing to choose."""

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        return ()

    def propose(self, choose: Chooser) -> Proposal:
        return Proposal("only", (("a", choose("a", (3,))),))


def bowl(proposal: Proposal) -> Outcome:
    """Microseconds with one optimum at a=4, b=1, c=2 and no ties among its neighbours."""
    want = {"a": 4, "b": 1, "c": 2}
    at = dict(proposal.choices)
    far = [abs(OPTIONS.index(at[n]) - OPTIONS.index(w)) for n, w in want.items()]
    return Outcome(10.0 + 5.0 * far[0] + 3.0 * far[1] + 1.0 * far[2])


def by_text(proposal: Proposal) -> Outcome:
    """A score, and a failure for one kind, that depend on the key alone."""
    if proposal.key.startswith("library"):
        return Outcome(None, violation=2.0)
    return Outcome(float(sum(map(ord, proposal.key)) % 97))


def fail(proposal: Proposal) -> Outcome:
    return Outcome(None)


def collect(
    searcher: Searcher,
    problem: Problem,
    score: Score,
    asks: int,
    *,
    known: Mapping[str, Outcome] | None = None,
    history: Sequence[tuple[Choices, Outcome]] = (),
) -> tuple[list[SearchStep], RunResult]:
    """The steps of a run of at most `asks` steps."""
    steps: list[SearchStep] = []
    result = run(
        searcher,
        problem,
        score,
        lambda: 0.0,
        lambda: len(steps) >= asks,
        lambda proposal: (known or {}).get(proposal.key),
        history=history,
        on_step=steps.append,
    )
    return steps, result


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def check_deterministic(make: Callable[[int], Searcher]) -> None:
    for problem, score in ((Grid(), bowl), (Conditional(), by_text)):
        first, second = (
            [step.proposal.choices for step in collect(make(7), problem, score, 40)[0]]
            for _ in range(2)
        )
        _require(first == second, "equal seeds must give equal proposals")
        _require(len(first) > len(problem.seeds()), "a search must go on after the seeds")


def check_seeds_first(make: Callable[[int], Searcher]) -> None:
    for problem in (Grid(), Conditional()):
        steps, _ = collect(make(1), problem, by_text, len(problem.seeds()))
        wanted = [
            problem.propose(lambda name, options, seed=seed: seed.get(name, options[0])).choices  # type: ignore[misc]  # bound defaults
            for seed in problem.seeds()
        ]
        _require([s.proposal.choices for s in steps] == wanted, "seeds come first, in order")


def check_failures(make: Callable[[int], Searcher]) -> None:
    for problem in (Grid(), Conditional()):
        steps, result = collect(make(2), problem, fail, 40)
        _require(result.best is None, "a failed proposal is never the best")
        _require(len({s.proposal.key for s in steps}) >= 8, "failures must not end the search")


def check_finds_optimum(make: Callable[[int], Searcher]) -> None:
    """Within 100 asks of 64 points, a value in the best tenth, for each of three seeds."""
    grid = Grid()
    values = []
    for point in itertools.product(OPTIONS, repeat=len(grid.names)):
        at = dict(zip(grid.names, point, strict=True))
        values.append(bowl(grid.propose(lambda name, _, at=at: at[name])).value or 0.0)  # type: ignore[misc]  # bound defaults
    limit = sorted(values)[len(values) // 10]
    for seed in range(3):
        _, result = collect(make(seed), grid, bowl, 100)
        best = result.best_value
        _require(best is not None and best <= limit, f"seed {seed}: {best} is not under {limit}")


def check_ends(make: Callable[[int], Searcher]) -> None:
    """A space used up ends the run by itself, with every point evaluated at most once."""
    _, result = collect(make(3), Single(), by_text, 10_000)
    _require(result.evaluated == 1, "the only point is evaluated once")
    _require(result.stopped in ("exhausted", "repeats"), "a space used up must end the run")
    steps, result = collect(make(3), Conditional(), by_text, 10_000)
    _require(result.stopped in ("exhausted", "repeats"), "a space used up must end the run")
    fresh = [s.proposal.key for s in steps if not s.repeated]
    _require(len(fresh) == len(set(fresh)) == result.evaluated, "nothing is evaluated twice")


def check_leaves_problem_alone(make: Callable[[int], Searcher]) -> None:
    seeds: tuple[dict[str, Option], ...] = ({"a": 2, "b": 8, "c": 8}, {"b": 2})
    before = [dict(seed) for seed in seeds]
    collect(make(4), Grid(start=seeds), bowl, 30)
    _require([dict(seed) for seed in seeds] == before, "a searcher must not change the problem")


def check_repeated_tells(make: Callable[[int], Searcher]) -> None:
    """The same proposal may be told again, and one key under other choices too."""
    problem, searcher = Conditional(), make(5)
    for _ in range(12):
        proposal = searcher.ask(problem)
        _require(proposal is not None, "twelve asks do not exhaust the space")
        assert proposal is not None
        searcher.tell(proposal, by_text(proposal))
        searcher.tell(proposal, by_text(proposal))
    mirrored = Proposal("fused:['2', '4']:True", _fused(4, 2))
    searcher.tell(mirrored, Outcome(5.0))
    searcher.tell(Proposal(mirrored.key, _fused(2, 4)), Outcome(5.0))
    _require(searcher.ask(problem) is not None, "asking goes on after repeated tells")


def _fused(x: int, y: int) -> Choices:
    return (("version", "v1"), ("kind", "fused"), ("x", x), ("y", y), ("vector", True))


def check_resumes(make: Callable[[int], Searcher]) -> None:
    """What was measured before is answered, not evaluated, and old choices are left out."""
    problem = Conditional()
    steps, _ = collect(make(6), problem, by_text, 12)
    known = {s.proposal.key: s.outcome for s in steps}
    again, _ = collect(make(6), problem, by_text, 12, known=known)
    _require(all(s.repeated for s in again), "equal seeds replay what is known")
    _require(all(s.outcome == known[s.proposal.key] for s in again), "known outcomes are answers")
    searcher = make(6)
    if isinstance(searcher, Resumable):
        history = [(s.proposal.choices, s.outcome) for s in steps]
        stale: tuple[Choices, Outcome] = ((("kind", "gone"),), Outcome(1.0))
        count = searcher.rebuild(problem, [*history, stale])
        _require(count == len(history), "choices that fit are taken in, others are not")
        _require(searcher.ask(problem) is not None, "a rebuilt search goes on")


CHECKS = (
    check_deterministic,
    check_seeds_first,
    check_failures,
    check_finds_optimum,
    check_ends,
    check_leaves_problem_alone,
    check_repeated_tells,
    check_resumes,
)


def check_searcher(factory: SearcherFactory, options: Mapping[str, str] | None = None) -> None:
    """Run every check on `factory`; raises AssertionError saying what does not hold."""
    for check in CHECKS:
        check(lambda seed: factory(seed, options or {}))
