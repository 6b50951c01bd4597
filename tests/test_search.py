"""Every search strategy against the conformance suite, and the loop that drives them."""

import warnings

import optuna
import pytest

import autofuse.search.optuna as optuna_search
from autofuse.errors import AutofuseError
from autofuse.ops.types import AutofuseError as OpsAutofuseError
from autofuse.search import SEARCHERS, Outcome, Proposal, make_searcher, run
from autofuse.search.conformance import (
    CHECKS,
    Conditional,
    Grid,
    Single,
    bowl,
    by_text,
    check_searcher,
    collect,
    fail,
)

VARIANTS = [(name, {}) for name in sorted(SEARCHERS)] + [("optuna", {"sampler": "nsga2"})]
ids = ["-".join([name, *options.values()]) for name, options in VARIANTS]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=ids)
def test_conformance(name, options, check):
    check(lambda seed: SEARCHERS[name](seed, options))


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_optuna_without_set_constraint(monkeypatch, sampler):
    """Optuna 4 has no Trial.set_constraint: the constraints_func of the sampler serves."""
    monkeypatch.setattr(optuna_search, "_HAS_SET_CONSTRAINT", False)
    check_searcher(SEARCHERS["optuna"], {"sampler": sampler})


def test_conformance_catches_a_searcher_that_ignores_seeds():
    class Stubborn:
        def ask(self, problem):
            return problem.propose(lambda name, options: options[-1])

        def tell(self, proposal, outcome):
            pass

    with pytest.raises(AssertionError, match=r"search must go on|seeds come first|not under"):
        check_searcher(lambda seed, options: Stubborn())


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_optuna_learns_to_avoid_a_failing_option(sampler):
    class Wide(Grid):
        def propose(self, choose):
            choices = tuple((f"p{i}", choose(f"p{i}", tuple(range(8)))) for i in range(5))
            return Proposal(str(choices), choices)

    def score(proposal):
        values = [option for _, option in proposal.choices]
        return Outcome(None) if values[0] == 3 else Outcome(100.0 + sum(values))

    steps, _ = collect(make_searcher("optuna", 0, {"sampler": sampler}), Wide(start=()), score, 200)
    late = [dict(s.proposal.choices)["p0"] for s in steps[100:]]
    assert late.count(3) <= len(late) // 10


def test_optuna_search_beats_random_on_a_separable_space():
    class Wide(Grid):
        def propose(self, choose):
            choices = tuple((f"p{i}", choose(f"p{i}", tuple(range(6)))) for i in range(8))
            return Proposal(str(choices), choices)

    def score(proposal):
        return Outcome(float(sum(option for _, option in proposal.choices)))

    best = {
        name: sum(
            collect(make_searcher(name, seed), Wide(start=()), score, 120)[1].best_value
            for seed in range(3)
        )
        for name in ("random", "optuna")
    }
    assert best["optuna"] < best["random"]


def test_rebuilt_study_uses_what_it_was_given():
    """After a history in which only a=4 works, TPE proposes a=4 far more than one time in four."""

    def score(proposal):
        return bowl(proposal) if dict(proposal.choices)["a"] == 4 else Outcome(None)

    grid = Grid(start=())
    steps, _ = collect(make_searcher("random", 1), grid, score, 64)
    history = [(s.proposal.choices, s.outcome) for s in steps]
    searcher = make_searcher("optuna", 2)
    assert searcher.rebuild(grid, history) == len(history)
    asked = []
    for _ in range(8):
        proposal = searcher.ask(grid)
        asked.append(dict(proposal.choices)["a"])
        searcher.tell(proposal, score(proposal))
    assert asked.count(4) >= 6


def test_random_rebuild_does_not_propose_the_past():
    grid = Grid(start=())
    steps, _ = collect(make_searcher("random", 1), grid, bowl, 30)
    searcher = make_searcher("random", 1)
    searcher.rebuild(grid, [(s.proposal.choices, s.outcome) for s in steps])
    later, _ = collect(searcher, grid, bowl, 20)
    assert not {s.proposal.key for s in steps} & {s.proposal.key for s in later}


def test_random_covers_a_small_space():
    _, result = collect(make_searcher("random", 0), Grid(), bowl, 1000)
    assert (result.stopped, result.evaluated, result.best_value) == ("exhausted", 64, 10.0)


def test_driver_counts_repeats_and_answers_from_known():
    evaluated = []

    def score(proposal):
        evaluated.append(proposal.key)
        return bowl(proposal)

    seed = {"a": 4, "b": 1, "c": 2}
    grid = Grid(start=(seed, seed, {"a": 1}))
    known = {"a=1,b=1,c=1": Outcome(3.0)}
    steps, result = collect(make_searcher("random", 0), grid, score, 3, known=known)
    assert evaluated == ["a=4,b=1,c=2"]
    assert [s.repeated for s in steps] == [False, True, True]
    assert [s.improved for s in steps] == [True, False, True]
    assert [s.index for s in steps] == [0, 1, 2]
    assert (result.steps, result.evaluated, result.repeats) == (3, 1, 2)
    assert (result.best.key, result.best_value) == ("a=1,b=1,c=1", 3.0)
    assert result.stopped == "stop"


def test_driver_stops_after_repeats_but_not_on_a_long_known_prefix():
    class Stuck:
        def __init__(self):
            self.asked = 0

        def ask(self, problem):
            self.asked += 1
            at = iter(f"{min(self.asked, 40):02d}")
            return Proposal("".join(at), ())

        def tell(self, proposal, outcome):
            pass

    known = {f"{i:02d}": Outcome(1.0) for i in range(41)}
    result = run(
        Stuck(),
        Single(),
        fail,
        lambda: 0.0,
        lambda: False,
        lambda p: known.get(p.key),
        max_repeats=10,
    )
    assert (result.stopped, result.steps, result.evaluated) == ("repeats", 50, 0)


def test_driver_accounts_sampler_time_only():
    now = [0.0]

    class Slow:
        def ask(self, problem):
            now[0] += 2.0
            return problem.propose(lambda name, options: options[0])

        def tell(self, proposal, outcome):
            now[0] += 0.5

    def score(proposal):
        now[0] += 100.0
        return Outcome(1.0)

    steps = []
    result = run(
        Slow(), Single(), score, lambda: now[0], lambda: len(steps) >= 2, on_step=steps.append
    )
    assert result.sampler_s == 5.0
    assert [s.sampler_s for s in steps] == [2.5, 2.5]


def test_driver_does_not_evaluate_after_a_stop_during_ask():
    stop = []

    class Interrupted:
        def ask(self, problem):
            stop.append(True)
            return Proposal("x", ())

        def tell(self, proposal, outcome):
            raise AssertionError("nothing to tell")

    result = run(Interrupted(), Single(), fail, lambda: 0.0, lambda: bool(stop))
    assert (result.stopped, result.steps) == ("stop", 0)


def test_infeasible_value_is_not_the_best():
    outcome = Outcome(1.0, violation=0.5)
    _, result = collect(make_searcher("random", 0), Grid(), lambda p: outcome, 5)
    assert result.best is None
    assert (outcome.severity, Outcome(None).severity, Outcome(2.0).severity) == (0.5, 1.0, 0.0)


@pytest.mark.parametrize("bad", [(float("nan"), 0.0), (float("inf"), 0.0), (None, -1.0)])
def test_outcome_refuses_numbers_that_cannot_be_ranked(bad):
    with pytest.raises(ValueError, match="must be finite"):
        Outcome(*bad)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("magic", {}, "unknown strategy 'magic'; known: .*optuna, random"),
        ("random", {"depth": "3"}, "no option 'depth'"),
        ("optuna", {"depth": "3"}, "no option 'depth'; it has: sampler"),
        ("optuna", {"sampler": "gp"}, "no sampler 'gp'; known: tpe, nsga2"),
    ],
)
def test_bad_strategy_is_one_sentence(name, options, message):
    with pytest.raises(AutofuseError, match=message):
        make_searcher(name, 0, options)
    assert AutofuseError is OpsAutofuseError


@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_options_of_a_name_may_not_change(name):
    class Shifting(Grid):
        def propose(self, choose):
            shift.append(1)
            return Proposal("x", (("a", choose("a", (len(shift), 100))),))

    shift = []
    searcher = make_searcher(name, 0)
    with pytest.raises(AutofuseError, match="parameter 'a' changed its options"):
        collect(searcher, Shifting(start=()), fail, 5)


@pytest.mark.parametrize("options", [(), (1, True), ("x", "x")])
def test_options_must_be_distinct(options):
    class Broken(Grid):
        def propose(self, choose):
            return Proposal("x", (("a", choose("a", options)),))

    with pytest.raises(AutofuseError, match="needs distinct options"):
        make_searcher("random", 0).ask(Broken(start=()))


@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_seed_that_is_no_option(name):
    with pytest.raises(AutofuseError, match="'3' is not an option of parameter 'a'"):
        make_searcher(name, 0).ask(Grid(start=({"a": 3},)))


def test_constants_do_not_reach_the_sampler():
    searcher = make_searcher("optuna", 0)
    collect(searcher, Conditional(), by_text, 20)
    names = {name for trial in searcher._study.trials for name in trial.params}
    assert names == {"kind", "x", "y", "vector", "block"}


def test_optuna_is_silent_and_leaves_logging_alone(capfd):
    before = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sampler in ("tpe", "nsga2"):
            collect(make_searcher("optuna", 0, {"sampler": sampler}), Conditional(), by_text, 30)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")
