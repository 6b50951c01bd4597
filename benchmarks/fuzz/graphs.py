"""Random valid graphs: equal seeds give equal graphs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import FLOATS, DType
from autofuse.ops.types import TensorType
from benchmarks.fuzz.elementwise import Move
from benchmarks.fuzz.maker import Made, Maker, attempt, finish
from benchmarks.fuzz.moves import FREQUENT, moves

# Ops of a graph: mostly few, since a small case says most.
SIZES = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 16, 24)
DEEPEST = 2


@lru_cache(maxsize=1)
def _drawn() -> tuple[tuple[str, Move], ...]:
    known = moves()
    rows = [*known, *FREQUENT]
    return tuple((name, known[name]) for name in rows)


# Drawn makers that are tried until one computes anything.
ATTEMPTS = 20


def random_graph(seed: int, ops: int | None = None) -> Graph:
    """A graph of about `ops` ops of any kind, with zero and one extents, constants of many
    elements, and loops that end by a count, by data, or are branches."""
    rng = random.Random(seed)
    for _ in range(ATTEMPTS):
        maker = Maker(rng.randrange(2**31), rng.sample(list(DType), rng.randint(1, 3)))
        _fill(maker, ops or rng.choice(SIZES), 0)
        if maker.computed:
            return finish(maker)
    raise AssertionError(f"no op of seed {seed} was accepted in {ATTEMPTS} attempts")


def _fill(maker: Maker, ops: int, depth: int) -> None:
    control: tuple[Move, ...] = ()
    if depth < DEEPEST:
        control = (lambda m: _loop(m, depth), lambda m: _while(m, depth),
                   lambda m: _branch(m, depth))  # fmt: skip
    for _ in range(6 * ops):
        if maker.ops >= ops:
            return
        if control and maker.chance(0.06):
            attempt(maker.choice(control), maker)
        else:
            attempt(maker.choice(_drawn())[1], maker)


class _Body:
    """A loop's body in the making: states first, then what it reads of the graph around it."""

    def __init__(self, outer: Maker, states: Sequence[Made]) -> None:
        self.outer = outer
        self.states = tuple(states)
        self.maker = Maker(outer.rng.randrange(2**31), outer.dtypes, inner=True)
        b = self.maker.builder
        counter = TensorType((), DType.I32)
        self.step = Made(b.input("step", (), DType.I32), counter)
        self.inside = [
            Made(b.input(f"s{k}", s.shape, s.dtype), s.type, min(s.low, -2.0), max(s.high, 2.0),
                 not s.dtype.is_float)
            for k, s in enumerate(states)
        ]  # fmt: skip
        self.captured: dict[Made, Made] = {}
        self.maker.made += [self.step, *self.inside]
        self.maker.capture = self._capture
        if outer.made and outer.chance(0.7):
            self._capture()

    def _capture(self) -> Made | None:
        if not self.outer.made or len(self.captured) >= 3:
            return None
        around = self.outer.choice(self.outer.made)
        if around not in self.captured:
            name = f"i{len(self.captured)}"
            value = self.maker.builder.input(name, around.shape, around.dtype)
            inner = Made(value, around.type, around.low, around.high, around.exact)
            self.captured[around] = inner
            self.maker.made.append(inner)
        return self.captured[around]

    def new_state(self, state: Made) -> Made:
        """A value of the body that may be the state's next: no larger than states may be."""
        m = self.maker
        mine = m.pick(lambda v: v.type == state.type and v is not state)
        if mine is None:
            mine = m.of_type(state.type)
        if not state.dtype.is_float:
            return mine
        if m.chance(0.1):
            return state
        squashed = m.add("sin", [mine], -1, 1)
        return m.add("add", [m.add("tanh", [state], -1, 1), squashed], -2, 2)


def _states(m: Maker, count: int) -> list[Made]:
    found = []
    for _ in range(count):
        x = m.any(tuple(DType))
        found.append(m.within(x, -2, 2) if x.dtype.is_float else x)
    return found


def _loop(m: Maker, depth: int) -> None:
    """A counted loop, with stacks or without, with states or without."""
    states = _states(m, m.choice((0, 1, 1, 1, 2, 3)))
    body = _Body(m, states)
    _fill(body.maker, m.choice((1, 2, 3, 4, 6)), depth + 1)
    news = [body.new_state(s) for s in body.inside]
    stacks = [
        v
        for v in (
            body.maker.pick(lambda v: v.type.size <= 512)
            for _ in range(m.choice((0, 0, 1, 2) if news else (1, 2)))
        )
        if v
    ]
    trip = m.choice((1, 2, 3, 4, 5, 7))
    inner = body.maker.builder.build([v.value for v in (*news, *stacks)])
    ins = [*(s.value for s in states), *(c.value for c in body.captured)]
    found = m.add_values("loop", ins, body=inner, trip=trip, carries=len(states))
    for value, made in zip(found, (*news, *stacks), strict=True):
        _keep(m, value, made)


def _keep(m: Maker, value: Value, like: Made) -> None:
    type_ = m.builder.type_of(value)
    low, high = (min(like.low, -2.0), max(like.high, 2.0)) if type_.dtype in FLOATS else (0, 0)
    m.keep(Made(value, type_, low, high, not type_.dtype.is_float))


def _flag(m: Maker) -> Made:
    return m.of_type(TensorType((), DType.BOOL))


def _while(m: Maker, depth: int) -> None:
    """A loop that ends by a count or by what it computes, after some trips at most; or where each
    place ends alone."""
    states = _states(m, m.choice((1, 1, 2)))
    lead = states[0].shape[:1] if m.chance(0.4) else ()
    if any(s.shape[: len(lead)] != lead for s in states):
        lead = ()
    go = m.of_type(TensorType(lead, DType.BOOL))
    body = _Body(m, [go, *states])
    _fill(body.maker, m.choice((1, 2, 3, 4)), depth + 1)
    b, most = body.maker, m.choice((1, 2, 3, 5))
    limit = b.full(most, body.step.type)
    again = b.add("lt", [body.step, limit])
    if lead:
        again = b.add("broadcast", [again], shape=lead, dims=())
    if b.chance(0.6):
        again = b.add("and", [again, b.of_type(TensorType(lead, DType.BOOL))])
    _ended(m, body, go, states, again, 9)


def _branch(m: Maker, depth: int) -> None:
    """What is computed where a flag is set alone."""
    states, go = _states(m, m.choice((1, 1, 2))), _flag(m)
    body = _Body(m, [go, *states])
    _fill(body.maker, m.choice((1, 2, 3, 4)), depth + 1)
    _ended(m, body, go, states, body.maker.full(0, TensorType((), DType.BOOL)), 1)


def _ended(m: Maker, body: _Body, go: Made, states: Sequence[Made], again: Made, most: int) -> None:
    news = [body.new_state(s) for s in body.inside[1:]]
    inner = body.maker.builder.build([v.value for v in (again, *news)])
    ins = [*(s.value for s in (go, *states)), *(c.value for c in body.captured)]
    found = m.add_values("while", ins, body=inner, max_trips=most, carries=len(news) + 1)
    for value, made in zip(found[1:], news, strict=True):
        _keep(m, value, made)
    if m.chance(0.2):
        _keep(m, found[0], again)
