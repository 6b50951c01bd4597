"""The exact planner against plain enumeration, on random and on hand-made planning problems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from statistics import mean

import pytest

from autofuse.cover import (
    CoverProblem,
    Measured,
    Options,
    Piece,
    PlanningStep,
    PlanResult,
    k_best,
    plan,
)
from autofuse.cover.ascent import opening
from autofuse.cover.order import run_order
from autofuse.cover.presolve import Part, presolve
from autofuse.errors import AutofuseError
from tests.support.exact_problems import Sample, all_plans, least_cost, random_sample, runnable
from tests.support.seeds import seeds

CLOSE = 1e-6


def piece(key, reads, writes, bound):
    return Piece(key, frozenset(reads.split()), frozenset(writes.split()), bound)


def problem(pieces, required, given="in"):
    return CoverProblem(tuple(pieces), frozenset(required.split()), frozenset(given.split()))


def solved(sample: Sample, **options) -> tuple[PlanResult, list[PlanningStep]]:
    steps: list[PlanningStep] = []
    return plan(
        sample.problem, sample.measure, options=Options(**options), on_step=steps.append
    ), steps


def exact(pieces, required, given="in"):
    """The planner's answer where every bound is the truth, checked against enumeration."""
    wanted = problem(pieces, required, given)
    sample = Sample(wanted, {p.key: p.bound_us for p in pieces})
    result, _ = solved(sample)
    assert result.plan is not None and runnable(wanted, result.plan)
    assert result.incumbent_us == pytest.approx(least_cost(wanted, sample.costs))
    return {wanted.pieces[p].key for p in result.plan}


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_equals_brute_force_on_random_problems(count):
    shares = []
    for seed in seeds(count):
        sample = random_sample(seed)
        best = least_cost(sample.problem, sample.costs)
        assert best is not None
        result, steps = solved(sample)
        assert result.stopped == "optimal" and result.plan is not None, seed
        assert runnable(sample.problem, result.plan), seed
        assert result.incumbent_us == pytest.approx(best, rel=CLOSE), seed
        cost = sum(sample.costs[sample.problem.pieces[p].key] for p in result.plan)
        assert cost == pytest.approx(best, rel=CLOSE), seed
        for step in steps:
            assert step.bound_us <= best * (1 + CLOSE), seed
            assert step.incumbent_us is None or step.incumbent_us >= best * (1 - CLOSE), seed
        shares.append(result.measured / len(sample.problem.pieces))
    assert mean(shares) <= 0.6


def test_without_time_for_a_linear_program_there_is_a_bound():
    shares = []
    for seed in seeds(60):
        sample = random_sample(seed)
        best = least_cost(sample.problem, sample.costs)
        known = {piece.key: sample.measure(piece) for piece in sample.problem.pieces}
        for there in ({}, known):  # of what is known the least plan is asked first
            result = plan(sample.problem, sample.measure, known=there, left_s=lambda: 0.0)
            assert 0.0 < result.bound_us <= best * (1 + CLOSE), seed
            shares.append(result.bound_us / best)
    assert mean(shares) >= 0.4


def test_what_dual_ascent_leaves_of_a_piece_is_what_it_adds_to_any_plan():
    for seed in seeds(40):
        sample = random_sample(seed, nodes=4)
        if len(sample.problem.pieces) > 14:
            continue
        made = presolve(sample.problem)
        for part in made.parts:
            costs = [float(made.bounds[key]) for key in part.keys]
            found = opening(part.reads, part.writes, costs, part.forced)
            for run in runs_of(part):
                cost = sum(costs[p] for p in run)
                assert found.bound <= cost * (1 + CLOSE)
                assert all(found.bound + found.left[p] <= cost * (1 + CLOSE) for p in run)


def runs_of(part: Part) -> Iterator[tuple[int, ...]]:
    """All sets of pieces of a part that make a plan of it."""
    wanted = {v for v, forced in enumerate(part.forced) if forced}
    every = range(len(part.keys))
    for chosen in itertools.chain.from_iterable(
        itertools.combinations(every, size) for size in range(len(every) + 1)
    ):
        run = run_order(part.reads, part.writes, chosen)
        if wanted <= set(run.available) and len(run.order) == len(chosen):
            yield chosen


def test_steps_only_get_better_and_say_what_was_spent():
    for seed in seeds(40):
        _, steps = solved(random_sample(seed), batch=2)
        for before, after in itertools.pairwise(steps):
            assert after.bound_us >= before.bound_us * (1 - CLOSE)
            assert after.gap <= before.gap + CLOSE
            assert after.fixed_out >= before.fixed_out
            assert after.measured > before.measured
            assert after.spent_s == pytest.approx(0.5 * after.measured)


def test_equal_problems_give_equal_plans_and_equal_measurements():
    for seed in (3, 11, 27):
        sample = random_sample(seed, nodes=12)
        runs = []
        for _ in range(2):
            asked: list[str] = []

            def measure(piece: Piece, sample=sample, asked=asked) -> Measured:
                asked.append(piece.key)
                return sample.measure(piece)

            result = plan(sample.problem, measure)
            runs.append((asked, result.plan, result.bound_us))
        assert runs[0] == runs[1]
        assert len(set(runs[0][0])) == len(runs[0][0])


def test_failed_pieces_are_left_out():
    for seed in seeds(60):
        sample = random_sample(1000 + seed, failures=0.5)
        best = least_cost(sample.problem, sample.costs)
        result, _ = solved(sample)
        assert result.incumbent_us == pytest.approx(best, rel=CLOSE)
        assert all(sample.costs[sample.problem.pieces[p].key] is not None for p in result.plan)


def test_says_infeasible_when_failures_leave_no_plan():
    wanted = problem([piece("a", "in", "x", 1), piece("b", "x", "y", 1)], "y")
    result = plan(wanted, lambda p: Measured(None if p.key == "b" else 1.0, 0.1))
    assert (result.stopped, result.plan, result.incumbent_us) == ("infeasible", None, None)
    assert result.failed == 1 and result.gap == 1.0


def test_two_pieces_that_feed_each_other_are_no_plan():
    pieces = [
        piece("ab", "in c", "a b", 1),
        piece("cd", "in b", "c d", 1),
        piece("b", "in", "b", 5),
        piece("c", "in", "c", 6),
    ]
    assert exact(pieces, "a d") == {"ab", "cd", "b"}


def test_a_ring_of_three_is_broken_at_its_cheapest_place():
    pieces = [
        piece("A", "in c2", "a1 a2", 1),
        piece("B", "in a2", "b1 b2", 1),
        piece("C", "in b2", "c1 c2", 1),
        piece("a", "in", "a2", 9),
        piece("b", "in", "b2", 7),
        piece("c", "in", "c2", 8),
    ]
    assert exact(pieces, "a1 b1 c1") == {"A", "B", "C", "b"}


def test_two_rings_that_share_a_value_are_broken_once():
    pieces = [
        piece("P", "in m", "p x", 1),
        piece("Q", "in x", "q m", 1),
        piece("R", "in m", "r y", 1),
        piece("S", "in y", "s m", 1),
        piece("m", "in", "m", 4),
        piece("x", "in", "x", 3),
        piece("y", "in", "y", 3),
    ]
    assert exact(pieces, "p q r s") in ({"P", "Q", "R", "S", "x"}, {"P", "Q", "R", "S", "y"})


def test_a_ring_between_parts_joined_only_by_required_values():
    pieces = [
        piece("uv", "in z", "u v", 1),
        piece("yz", "in v", "y z", 1),
        piece("u", "in", "u", 2),
        piece("v", "in u", "v", 2),
        piece("y", "in v", "y", 2),
        piece("z", "in y", "z", 2),
    ]
    assert exact(pieces, "u v y z") == {"u", "v", "yz"}


def test_half_of_this_and_half_of_that_is_no_plan():
    # Each option reads another value, and one piece writes all three: a relaxation pays a part.
    pieces = [piece(f"o{i}", f"x{i}", "out", 1) for i in range(3)]
    pieces += [piece("all", "in", "x0 x1 x2", 30), piece("own", "in", "out", 20)]
    assert exact(pieces, "out") == {"own"}


def test_recomputing_beats_storing_where_it_is_cheaper():
    pieces = [
        piece("exp", "in", "e", 4),
        piece("sum", "e", "s", 4),
        piece("div", "e s", "d", 5),
        piece("exp+sum", "in", "s", 4.5),
        piece("exp+div", "in s", "d", 4.6),
    ]
    assert exact(pieces, "d") == {"exp+sum", "exp+div"}


def test_given_values_need_no_writer_and_useless_pieces_are_never_measured():
    wanted = problem(
        [piece("a", "in", "x", 1), piece("no", "in", "unused", 0.1), piece("dead", "gone", "x", 0)],
        "x in",
    )
    asked = []
    result = plan(wanted, lambda p: (asked.append(p.key), Measured(2.0, 0.0))[1])
    assert asked == ["a"] and result.plan == (0,)
    nothing = plan(problem([], "in"), lambda p: Measured(1.0))
    assert (nothing.plan, nothing.incumbent_us, nothing.stopped) == ((), 0.0, "optimal")


def test_no_plan_at_all_is_an_error_that_names_the_value():
    with pytest.raises(AutofuseError, match="required value 'y'"):
        plan(problem([piece("a", "in", "x", 1), piece("b", "z", "y", 1)], "x y"), Measured)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_bounds_and_costs_must_be_numbers_of_microseconds(bad):
    with pytest.raises(AutofuseError):
        piece("a", "in", "x", bad)
    with pytest.raises(AutofuseError):
        Measured(bad)


def layers(count):
    """`count` equal layers, each with three ways to compute it, one after another."""
    pieces = []
    for i in range(count):
        at, mid, to = f"h{i}", f"m{i}", f"h{i + 1}"
        pieces += [
            piece("first", at, mid, 3),
            piece("second", mid, to, 3),
            piece("both", at, to, 4),
        ]
    return problem(pieces, f"h{count}", "h0")


def test_equal_keys_are_measured_once_however_many_layers():
    costs = {"first": 3.5, "second": 3.5, "both": 5.0}
    asked: list[str] = []

    def measure(piece: Piece) -> Measured:
        asked.append(piece.key)
        return Measured(costs[piece.key], 1.0)

    short, deep = plan(layers(12), measure), plan(layers(24), measure)
    assert short.incumbent_us == pytest.approx(60.0) and deep.incumbent_us == pytest.approx(120.0)
    assert len(asked) == short.measured + deep.measured and short.measured == len(set(asked)) == 1
    assert runnable(layers(24), deep.plan)
    known = {key: Measured(cost, 1.0) for key, cost in short.costs.items()}
    again = plan(layers(24), measure, known=known)
    assert (again.measured, again.incumbent_us) == (0, pytest.approx(120.0))


def test_start_plans_are_measured_first_and_never_lost():
    sample = random_sample(5, nodes=10)
    single = [
        i
        for i, p in enumerate(sample.problem.pieces[:10])
        if sample.costs[p.key] is not None and len(p.writes) == 1
    ]
    asked: list[str] = []

    def measure(piece: Piece) -> Measured:
        asked.append(piece.key)
        return sample.measure(piece)

    result = plan(
        sample.problem, measure, start=[single], should_stop=lambda: len(asked) >= len(single)
    )
    assert asked == [sample.problem.pieces[i].key for i in single]
    limit = sum(sample.costs[sample.problem.pieces[i].key] for i in single)
    assert result.stopped == "stop" and result.plan is not None
    assert result.incumbent_us <= limit and result.bound_us <= result.incumbent_us


def test_stops_at_the_gap_asked_for():
    spared = 0
    for seed in range(30):
        sample = random_sample(seed, nodes=12)
        best = least_cost(sample.problem, sample.costs)
        loose, _ = solved(sample, gap=0.1, batch=1)
        tight, _ = solved(sample, batch=1)
        assert loose.gap <= 0.1 and loose.incumbent_us <= best / 0.9 * (1 + CLOSE)
        spared += tight.measured - loose.measured
    assert spared > 0


def test_stops_when_measuring_no_longer_pays():
    sample = random_sample(8, nodes=12)
    few = plan(sample.problem, sample.measure, options=Options(runs=1, seconds=lambda p: 0.5))
    many = plan(sample.problem, sample.measure, options=Options(runs=1e9, seconds=lambda p: 0.5))
    assert few.plan is not None and many.stopped == "optimal"
    assert few.measured <= many.measured


def test_bounds_that_are_too_high_are_noticed_and_lowered():
    for seed in range(60):
        sample = random_sample(seed, nodes=10, failures=0.0)
        low = {p.key: 0.8 * p.bound_us for p in sample.problem.pieces}
        best = least_cost(sample.problem, low)
        result, steps = solved(Sample(sample.problem, low), batch=1)
        # Every bound is too high by as much, so the first measurement sets all of them right.
        assert result.bound_violations == result.measured > 0
        assert result.safety == pytest.approx(0.8)
        assert result.incumbent_us == pytest.approx(best, rel=CLOSE)
        assert all(step.bound_us <= best * (1 + CLOSE) for step in steps[1:])


def test_a_bound_is_never_above_the_incumbent_even_when_bounds_are_wrong():
    for seed in range(60):
        sample = random_sample(seed, nodes=10)
        wrong = {
            p.key: p.bound_us * (0.5 if i % 3 else 1.2) for i, p in enumerate(sample.problem.pieces)
        }
        result, steps = solved(Sample(sample.problem, wrong), batch=2)
        assert all(s.incumbent_us is None or s.bound_us <= s.incumbent_us for s in steps)
        assert result.incumbent_us == pytest.approx(least_cost(sample.problem, wrong), rel=CLOSE)


def test_a_first_plan_is_measured_to_the_end_before_others_are_tried():
    sample = random_sample(21, nodes=12, failures=0.0)
    first = k_best(sample.problem)[0].plan
    result, steps = solved(sample, batch=1)
    assert result.measured > len(first)
    early = next(s for s in steps if s.incumbent_us is not None)
    assert early.measured <= len(first)


@pytest.mark.parametrize("bad", [{"gap": -0.1}, {"gap": math.nan}, {"batch": 0}, {"runs": -1.0}])
def test_options_out_of_range_are_refused(bad):
    with pytest.raises(AutofuseError):
        Options(**bad)


def test_filling_the_batch_measures_more_and_finds_the_same():
    sample = random_sample(14, nodes=12)
    plain, _ = solved(sample, batch=6)
    filled, _ = solved(sample, batch=6, fill=True)
    assert filled.incumbent_us == pytest.approx(plain.incumbent_us)
    assert filled.measured >= plain.measured


def test_k_best_lists_every_irredundant_plan_in_order():
    for seed in range(25):
        sample = random_sample(seed, nodes=4, candidates=8)
        if len(sample.problem.pieces) > 13:
            continue
        every = all_plans(sample.problem, sample.costs)
        ranked = k_best(sample.problem, sample.costs, 6)
        assert [r.cost_us for r in ranked] == pytest.approx([c for c, _ in every[:6]])
        assert all(runnable(sample.problem, r.plan) for r in ranked)
        assert len({frozenset(r.plan) for r in ranked}) == len(ranked) == min(6, len(every))


def test_k_best_by_bounds_alone():
    ranked = k_best(layers(3), k=4)
    assert [r.cost_us for r in ranked] == pytest.approx([12, 14, 14, 14])


def test_enumeration_agrees_with_itself():
    for seed in range(20):
        sample = random_sample(seed, nodes=4, candidates=8)
        if len(sample.problem.pieces) <= 13:
            best = least_cost(sample.problem, sample.costs)
            assert all_plans(sample.problem, sample.costs)[0][0] == pytest.approx(best)
