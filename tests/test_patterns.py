"""Identities of rules, each alone: it fits a graph made from its own tree, and what it makes of
that is the same for every number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from autofuse.graph.types import Graph, Value
from autofuse.ops import all_specs
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError
from autofuse.simplify import RULES
from autofuse.simplify.draft import Draft
from autofuse.simplify.patterns import Applied, Hole, Identity, OpTree, Rewriting, holes, ops
from tests.support.simplify_cases import Writer, check_on_special_numbers, graph_of

x, y = holes("x y")
add, sub, mul, neg = ops("add sub mul neg")
KINDS = (DType.F32, DType.I32, DType.U8, DType.BOOL)
# What is said besides operands: what is tried.
SAID: dict[str, list[dict[str, object]]] = {
    "cast": [{"dtype": each} for each in ("f32", "f16", "i32", "u8")],
    "bitcast": [{"dtype": each} for each in ("f32", "i32", "u8")],
    "reshape": [{"shape": shape} for shape in ((3,), (3, 1), (1, 3))],
}
# How a hole that asks for something is filled, from an input of its dtype.
FILLED = ("input", "exp", "constant")


def named(tree: OpTree) -> Iterator[OpTree]:
    """The tree and all trees in it, operands first."""
    if isinstance(tree, Applied):
        for operand in tree.operands:
            yield from named(operand)
    yield tree


Choice = tuple[dict[str, tuple[DType, str]], tuple[dict[str, object], ...]]


def choices(identity: Identity) -> Iterator[Choice]:
    """A dtype and a way to fill it for each hole, all of one dtype or bools, and attributes for
    each op, operands first."""
    parts = list(named(identity.before))
    found = [t for t in parts if isinstance(t, Hole)]
    asks = {t.name: any(u.test for u in found if u.name == t.name) for t in found}
    said = [SAID.get(t.op, [{}]) for t in parts if isinstance(t, Applied)]
    for kind in KINDS:
        pair = dict.fromkeys((kind, DType.BOOL))
        ways = [product(pair, FILLED if asked else FILLED[:1]) for asked in asks.values()]
        for filled, attrs in product(product(*ways), product(*said)):
            yield dict(zip(asks, filled, strict=True)), attrs


def smallest(identity: Identity, op: str, choice: Choice) -> Graph:
    """The tree as a graph of three elements. Raises GraphError where dtypes do not go together."""
    w, said = Writer(), iter(choice[1])
    filled = {name: fill(w, name, *how) for name, how in choice[0].items()}

    def written(tree: OpTree, like: Value | None) -> Value:
        if isinstance(tree, Hole):
            return filled[tree.name]
        if isinstance(tree, Applied):
            first = next((written(t, None) for t in tree.operands if isinstance(t, Hole)), None)
            values = [written(each, first) for each in tree.operands]
            return w.builder.add(tree.op or op, *values, **next(said))
        if isinstance(tree, bool):
            return w.fill(tree, 3, dtype="bool")
        return w.full(tree, w.kind(like or next(iter(filled.values()))))

    return w.builder.build([written(identity.before, None)])


def fill(w: Writer, name: str, kind: DType, way: str) -> Value:
    if way == "constant":
        return w.fill(True if kind is DType.BOOL else 3, 3, dtype=str(kind))
    made = w.builder.input(name, (3,), kind)
    return w.exp(made) if way == "exp" else made


def rewritten(graph: Graph, identity: Identity) -> Graph | None:
    """The graph after one rewrite of its result, None where the identity does not fit."""
    draft = Draft(graph, lambda body, _: body)
    root = draft.outputs[0].node
    found = Rewriting((identity,))(draft, root)
    if found is None:
        return None
    assert isinstance(found, Value)
    draft.replace(root, [found])
    return draft.finish()


def fitting(identity: Identity, op: str) -> Iterator[tuple[Graph, Graph]]:
    """Graphs that an identity fits, before and after: one for each choice of dtypes."""
    seen = set[str]()
    for choice in choices(identity):
        kinds = str([[kind for kind, _ in choice[0].values()], choice[1]])
        if kinds in seen:
            continue
        try:
            before = smallest(identity, op, choice)
        except GraphError:
            continue
        after = rewritten(before, identity)
        if after is not None:
            seen.add(kinds)
            yield before, after


PATTERNS = {name: each.apply for name, each in RULES.items() if isinstance(each.apply, Rewriting)}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_identity_of_a_rule_fits_and_holds(name: str) -> None:
    """For each op that the rule is asked about some identity, and each identity for some op."""
    asked = {spec.name for spec in all_specs() if RULES[name].wants(spec)}
    seen: set[str] = set()
    for identity in PATTERNS[name].identities:
        fits = False
        for op in sorted(asked):
            if identity.before.op not in (op, ""):
                continue
            for before, after in fitting(identity, op):
                check_on_special_numbers(before, after, close=not identity.exact)
                fits = True
                seen.add(op)
        assert fits, identity
    assert seen == asked


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "wrong", [Identity(sub(x, y), add(x, y)), Identity(add(x, 0), x), Identity(mul(x, 0), 0)]
)
def test_an_identity_that_does_not_hold_is_seen(wrong: Identity) -> None:
    with pytest.raises(AssertionError):
        for before, after in fitting(wrong, ""):
            check_on_special_numbers(before, after, close=False)


def test_operands_that_commute_fit_in_either_order() -> None:
    identity = Identity(add(x, neg(y)), sub(x, y))
    for write in (lambda w, a, b: w.add(a, w.neg(b)), lambda w, a, b: w.add(w.neg(b), a)):
        after = rewritten(graph_of("f32[3] f32[3]", write), identity)
        assert after is not None and after[after.outputs[0].node].op == "sub"
        assert [v.node for v in after[after.outputs[0].node].inputs] == list(after.inputs)
    turned = replace(identity, before=sub(x, neg(y)))
    assert rewritten(graph_of("f32[3] f32[3]", lambda w, a, b: w.sub(w.neg(b), a)), turned) is None


def test_a_name_is_one_value_and_a_zero_has_its_sign() -> None:
    alike = Identity(add(x, x), x)
    assert rewritten(graph_of("f32[3] f32[3]", lambda w, a, b: w.add(a, b)), alike) is None
    for zero, fits in ((0.0, False), (-0.0, True)):
        graph = graph_of("f32[3]", lambda w, a, zero=zero: w.sub(w.fill(zero, 3), a))
        assert (rewritten(graph, Identity(sub(-0.0, x), neg(x))) is not None) == fits
