"""Simplifications said as pairs of trees: `add(x, neg(y))` is `sub(x, y)`.

Before: a tree of ops with named holes and numbers, which a node and what it reads must fit. Where
operands of an op commute, either order fits, the one that is written first. After: what takes its
place. Trees are made once into functions, by the op of the node that is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.spec import OpSpec, spec_of
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import is_uniform
from autofuse.simplify.rules import Replacement, Simplification, any_of, register

# What holes stand for, by name, and under WHOLE the value that is to be replaced.
Bindings = dict[str, Value]
WHOLE = ""
Holds = Callable[[Draft, Value], bool]
Matcher = Callable[[Draft, Value, Bindings], bool]


@dataclass(frozen=True, slots=True)
class Hole:
    """Any value of which `test` holds, the same one wherever its name stands."""

    name: str
    test: Holds | None = None

    def where(self, test: Holds) -> Hole:
        return Hole(self.name, test)


@dataclass(frozen=True, slots=True)
class Applied:
    """An op of operands, by name; `op` "" is the op that the whole tree is of. After a rewrite it
    has the attributes of the node that is replaced, if that is of the same op, else none."""

    op: str
    operands: tuple[OpTree, ...]
    name: str = ""

    def named(self, name: str) -> Applied:
        return replace(self, name=name)


# A number stands for an array of it, in the type of the whole; zeros have a sign if it is a float.
OpTree = Hole | Applied | bool | int | float


def _applied(op: str, *operands: OpTree) -> Applied:
    return Applied(op, operands)


same_op = partial(_applied, "")


def ops(names: str) -> list[Callable[..., Applied]]:
    """A function for each op that writes it in a tree."""
    return [partial(_applied, name) for name in names.split()]


def holes(names: str) -> list[Hole]:
    return [Hole(name) for name in names.split()]


@dataclass(frozen=True, slots=True)
class Identity:
    """`before` is `after`, if `when` holds of what the holes stand for. `of` says which ops
    `same_op` may be. Equal to the last bit, unless not `exact`: the two round otherwise."""

    before: Applied
    after: OpTree
    when: Callable[[Draft, Bindings], bool] | None = None
    of: Callable[[OpSpec], bool] | None = None
    exact: bool = True


def _orders(tree: Applied, op: str) -> list[Applied]:
    """A tree of this op with its operands in every order that means the same. Numbers stay where
    they are: constants go right by a rule of their own."""
    name = tree.op or op
    inside = product(
        *(_orders(each, op) if isinstance(each, Applied) else [each] for each in tree.operands)
    )
    found = [Applied(name, operands, tree.name) for operands in inside]
    if spec_of(name).algebra.commutes and all(map(_may_move, tree.operands)):
        found += [replace(each, operands=each.operands[::-1]) for each in found]
    return list(dict.fromkeys(found))


def _may_move(tree: OpTree) -> bool:
    return isinstance(tree, Applied) or (isinstance(tree, Hole) and tree.test is not is_uniform)


def _fits(tree: OpTree) -> Matcher:
    """Whether a value fits a tree; it binds the holes. What is asked quickly is asked first."""
    if isinstance(tree, Hole):
        hole, test = tree.name, tree.test

        def binds(draft: Draft, value: Value, bound: Bindings) -> bool:
            before = bound.setdefault(hole, value)
            same = before is value or before == value
            return same and (test is None or test(draft, value))

        return binds
    if not isinstance(tree, Applied):
        return lambda draft, value, bound: (
            draft.is_constant(value) and is_number(draft.uniform(value), tree)
        )
    op, name, count = tree.op, tree.name, len(tree.operands)
    quick = sorted(enumerate(tree.operands), key=lambda each: _QUICK.get(type(each[1]), 1))
    parts = [(k, _fits(operand)) for k, operand in quick]

    def fits(draft: Draft, value: Value, bound: Bindings) -> bool:
        node = draft[value.node]
        if node.op != op or len(node.inputs) != count:
            return False
        if name:
            bound[name] = value
        return all(part(draft, node.inputs[k], bound) for k, part in parts)

    return fits


_QUICK = {Applied: 0, Hole: 2}


def is_number(found: np.generic | None, wanted: int | float | bool) -> bool:
    """Whether an element is this number: a bool if it is one, a float with the sign of a zero."""
    if found is None or (isinstance(wanted, bool) and found.dtype.kind != "b"):
        return False
    if isinstance(wanted, float) and wanted == 0 and found.dtype.kind not in "biu":
        return bool(found == 0) and bool(np.signbit(found)) == bool(np.signbit(wanted))
    return bool(found == wanted)


def built(draft: Draft, tree: OpTree, bound: Bindings) -> Value:
    """The value of a tree whose holes stand for these values."""
    if isinstance(tree, Hole):
        return bound[tree.name]
    whole = draft.node(bound[WHOLE])
    if not isinstance(tree, Applied):
        return draft.full(tree, whole.types[0])
    op = tree.op or whole.op
    operands = (built(draft, operand, bound) for operand in tree.operands)
    return draft.add(op, *operands, **dict(whole.attrs if op == whole.op else ()))


class Rewriting:
    """A rule made of identities; the first that fits is applied."""

    def __init__(self, identities: tuple[Identity, ...]) -> None:
        self.identities = identities
        self._by_op: dict[str, list[tuple[int, str, Matcher, Identity]]] = {}

    def __call__(self, draft: Draft, at: int) -> Replacement:
        op, inputs = draft[at].op, draft[at].inputs
        if op not in self._by_op:
            self._by_op[op] = list(self._cases(op))
        for k, inner, fits, each in self._by_op[op]:
            if inner and draft[inputs[k].node].op != inner:
                continue  # as nearly always
            bound = {WHOLE: Value(at)}
            if fits(draft, bound[WHOLE], bound) and (each.when is None or each.when(draft, bound)):
                return built(draft, each.after, bound)
        return None

    def _cases(self, op: str) -> Iterator[tuple[int, str, Matcher, Identity]]:
        """Trees of an op, and an operand that is of another op in each, "" where none is."""
        for each in self.identities:
            if each.before.op == op if each.of is None else each.of(spec_of(op)):
                for tree in _orders(each.before, op):
                    inner = (
                        (k, t.op) for k, t in enumerate(tree.operands) if isinstance(t, Applied)
                    )
                    yield *next(inner, (0, "")), _fits(tree), each


def rewrite(family: str, name: str, source: str, does: str, *identities: Identity) -> None:
    """Register a rule made of identities; see `Simplification`."""
    wants = any_of(*(each.of or each.before.op for each in identities))
    register(Simplification(name, source, wants, Rewriting(identities), family, does))
