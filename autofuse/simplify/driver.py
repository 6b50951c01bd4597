"""`simplify` rewrites a graph until no rule applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.errors import GraphError
from autofuse.graph.canonical import canonical, node_text
from autofuse.graph.types import Graph, Node, Value
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, Simplification, rules_of

# Replacements of one node of a graph, on average, from which on rules are taken to go in circles.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a rule did: the node it was shown, and those that stand there now. Numbers are those of
    the graph as it was written, then of what was added. `scope` names the loops around it."""

    rule: str
    was: tuple[int, Node]
    now: tuple[tuple[int, Node], ...]
    scope: tuple[str, ...] = ()

    @property
    def before(self) -> str:
        return node_text(*self.was)

    @property
    def after(self) -> str:
        return "; ".join(node_text(*each) for each in self.now)


@dataclass(frozen=True)
class Simplified:
    """A graph in which no rule applies, and the steps to it, in order."""

    graph: Graph
    steps: tuple[Rewrite, ...]


def every_rule(_: Simplification) -> bool:
    return True


def simplify(graph: Graph, allowed: Callable[[Simplification], bool] = every_rule) -> Simplified:
    """`graph` rewritten to a fixpoint by the rules that are `allowed`; inputs, outputs, their types
    and names stay as they are.

    Takes time in proportion to the graph. Raises GraphError, naming the rules, should they go in
    circles.
    """
    return _Driver(allowed).run(graph, 0, ())


class _Driver:
    """One simplification, loop bodies included."""

    def __init__(self, allowed: Callable[[Simplification], bool]) -> None:
        self._allowed = allowed
        self._steps: list[Rewrite] = []
        # Bodies that no rule changes any more, each under itself: one object for equal ones, which
        # are compared by identity then.
        self._done: dict[Graph, Graph] = {}
        self._rules: dict[str, tuple[Simplification, ...]] = {}

    def run(self, graph: Graph, trip: int, scope: tuple[str, ...]) -> Simplified:
        """Simplify `graph`, which is the body of a loop of `trip` iterations if that is not 0."""
        first = len(self._steps)

        def body_of(body: Graph, its_trip: int) -> Graph:
            known = self._done.get(body)
            if known is None:
                known = self.run(body, its_trip, (*scope, "loop")).graph
                self._done[known] = known
            return known

        draft = Draft(graph, body_of, trip)
        left = _MOST * (len(graph.nodes) + 16)
        while True:
            before = len(self._steps)
            draft.look_at_all()
            while draft.todo:
                number = draft.todo.popleft()
                wanted = number in draft and number not in draft.settled
                left -= wanted and self._visit(draft, number, scope)
                if left < 0:
                    names = ", ".join(sorted({s.rule for s in self._steps[-8:]}))
                    raise GraphError(f"simplifications go in circles: {names}; use --no-simplify")
            if len(self._steps) == before:
                break
        return Simplified(canonical(draft.finish()), tuple(self._steps[first:]))

    def _visit(self, draft: Draft, number: int, scope: tuple[str, ...]) -> bool:
        """Show a node to its rules; whether one of them replaced it."""
        op = draft[number].op
        if op not in self._rules:
            self._rules[op] = tuple(filter(self._allowed, rules_of(op)))
        for rule in self._rules[op]:
            made = draft.made
            values = _values(rule.apply(draft, number))
            settled = values is not None and all(v.node == number for v in values)
            if values is not None and not settled:
                self._replace(draft, number, rule, values, scope)
            for new in reversed(range(made, draft.made)):
                draft.drop_dead(new)
            if settled:
                draft.settled.add(number)
            if values is not None:
                return not settled
        return False

    def _replace(
        self,
        draft: Draft,
        number: int,
        rule: Simplification,
        values: tuple[Value, ...],
        scope: tuple[str, ...],
    ) -> None:
        now = tuple((i, draft[i]) for i in dict.fromkeys(v.node for v in values))
        self._steps.append(Rewrite(rule.name, (number, draft[number]), now, scope))
        draft.replace(number, values)
        draft.todo.extendleft(v.node for v in values)


def _values(found: Replacement) -> tuple[Value, ...] | None:
    return (found,) if isinstance(found, Value) else found
