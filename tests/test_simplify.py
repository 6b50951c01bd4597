"""Simplifications: each rule before and after, exact on special numbers, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.errors import GraphError
from autofuse.graph.canonical import canonical, digest, text
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.graph.verify import verify
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.simplify import RULES, normal_form, rule, simplify
from autofuse.simplify.draft import Draft
from autofuse.simplify.page import simplifications_page
from autofuse.simplify.refused import REFUSED
from tests.support.random_graphs import ALL_MOVES, random_graph
from tests.support.simplify_cases import Case, Writer, check_on_special_numbers, graph_of
from tests.support.simplify_guard_cases import GUARDS, KEPT
from tests.support.simplify_tables import EVERY

PAGE = Path(__file__).parent.parent / "docs" / "simplifications.md"


def number_cases() -> Iterator[object]:
    seen: Counter[str] = Counter()
    for case in EVERY:
        seen[case.rule] += 1
        yield pytest.param(case, id=f"{case.rule}-{seen[case.rule]}")


def test_every_rule_has_a_case_and_a_source() -> None:
    assert {case.rule for case in EVERY} == set(RULES)
    assert all(each.source and each.does for each in RULES.values())
    assert len({each.family for each in RULES.values()}) >= 14


@pytest.mark.parametrize("case", number_cases())
def test_a_program_becomes_the_simpler_one(case: Case) -> None:
    before, after = (canonical(graph_of(case.inputs, w)) for w in (case.before, case.after))
    found = simplify(before)
    assert text(verify(found.graph)) == text(after)
    assert case.rule in {step.rule for step in found.steps}
    assert simplify(after).steps == (), "what it becomes is the normal form"


@pytest.mark.parametrize("case", number_cases())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nothing_changes_for_any_number(case: Case) -> None:
    """NaN, infinities and signs of zeros included; close where a rule may round otherwise."""
    before = canonical(graph_of(case.inputs, case.before))
    check_on_special_numbers(before, simplify(before).graph, case.close)


@pytest.mark.parametrize("name", KEPT)
def test_a_guard_that_guards_stays(name: str) -> None:
    before = canonical(graph_of("f32[3,4]", KEPT[name]))
    families = {RULES[step.rule].family for step in simplify(before).steps}
    assert "guards" not in families


def test_a_halved_gate_is_exact_for_the_smallest_numbers() -> None:
    """Of subnormal numbers a half is rounded: their gate is 1, so nothing else is."""
    (case,) = (each for each in GUARDS if each.rule == "halved-gate")
    graphs = [graph_of("f32[24]", write) for write in (case.before, case.after)]
    smallest = np.arange(-12, 12, dtype=np.float32) * np.float32(1e-45)
    wanted, found = (in_f32(each, [smallest])[0] for each in graphs)
    np.testing.assert_array_equal(found, wanted)
    assert np.unique(wanted).size > 6


# --- what does not hold ---------------------------------------------------------------------------


def _x(w: Writer, x: Value, *_: Value) -> Value:
    return x


Pair = tuple[str, Callable[..., Value], Callable[..., Value]]
MAT = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
ONE = "f32[1]"
EYE = ((1.0, 0.0), (0.0, 1.0))
SIDES: dict[str, Pair] = {
    "zero-product": (ONE, lambda w, x: w.mul(x, 0.0), lambda w, x: w.fill(0.0, 1)),
    "plus-zero": (ONE, lambda w, x: w.add(x, 0.0), _x),
    "zero-minus": (ONE, lambda w, x: w.sub(w.fill(0.0, 1), x), lambda w, x: w.neg(x)),
    "difference-with-itself": (ONE, lambda w, x: w.sub(x, x), lambda w, x: w.fill(0.0, 1)),
    "quotient-with-itself": (ONE, lambda w, x: w.div(x, x), lambda w, x: w.fill(1.0, 1)),
    "equal-to-itself": (ONE, lambda w, x: w.eq(x, x), lambda w, x: w.fill(True, 1, dtype="bool")),
    "negated-comparison": (f"{ONE} {ONE}", lambda w, x, y: w.not_(w.lt(x, y)),
                           lambda w, x, y: w.ge(x, y)),
    "log-of-exp": (ONE, lambda w, x: w.log(w.exp(x)), _x),
    "exp-of-log": (ONE, lambda w, x: w.exp(w.log(x)), _x),
    "root-of-square": (ONE, lambda w, x: w.sqrt(w.mul(x, x)), lambda w, x: w.abs(x)),
    "square-of-root": (ONE, lambda w, x: w.mul(w.sqrt(x), w.sqrt(x)), _x),
    "power-as-root": (ONE, lambda w, x: w.pow(x, 0.5), lambda w, x: w.sqrt(x)),
    "reciprocal-product": (ONE, lambda w, x: w.div(x, 3.0), lambda w, x: w.mul(x, 1.0 / 3.0)),
    "reassociation": (ONE, lambda w, x: w.add(w.add(x, 1e8), -1e8), _x),
    "distribution": (ONE, lambda w, x: w.add(w.mul(x, 3.0), w.mul(x, -2.0)), _x),
    "nested-quotient": (f"{ONE} {ONE} {ONE}", lambda w, x, y, z: w.div(w.div(x, y), z),
                        lambda w, x, y, z: w.div(x, w.mul(y, z))),
    "scaled-sum": ("f32[2]", lambda w, x: w.reduce_sum(w.mul(x, 0.1), axes=(0,)),
                   lambda w, x: w.mul(w.reduce_sum(x, axes=(0,)), w.number(0.1))),
    "masked-product": (ONE, lambda w, x: w.mul(x, w.cast(w.gt(x, 9.0), dtype="f32")),
                       lambda w, x: w.select(w.gt(x, 9.0), x, w.fill(0.0, 1))),
    "narrowing-round-trip": (ONE, lambda w, x: w.cast(w.cast(x, dtype="f16"), dtype="f32"), _x),
    "identity-product": ("f32[1,2]", lambda w, x: w.dot_general(x, w.array(EYE), **MAT), _x),
}  # fmt: skip


def in_f32(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Every op rounded to f32, as a kernel does."""
    found: dict[Value, np.ndarray] = {
        Value(i): a for i, a in zip(graph.inputs, inputs, strict=True)
    }
    for i, node in enumerate(graph.nodes):
        if node.op != "input":
            operands = tuple(found[v].astype(graph.type_of(v).dtype.reference) for v in node.inputs)
            for k, result in enumerate(node.spec.reference(operands, graph.call(i))):
                found[Value(i, k)] = np.asarray(result).astype(node.types[k].dtype.numpy)
    return [found[v] for v in graph.outputs]


@pytest.mark.parametrize("identity", REFUSED, ids=lambda each: str(each.name))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_does_not_hold_is_not_done(identity: object) -> None:
    refused = next(each for each in REFUSED if each is identity)
    inputs, before, after = SIDES[refused.name]
    one, other = (canonical(graph_of(inputs, w)) for w in (before, after))
    assert text(normal_form(one)) != text(normal_form(other))
    kinds = one.input_types
    flat = list(refused.operands) * 2
    arrays = [np.resize(np.float32(flat[k:] if len(kinds) > 1 else flat), t.shape)
              for k, t in enumerate(kinds)]  # fmt: skip
    (left,), (right,) = (in_f32(g, arrays) for g in (one, other))
    same = left == right
    if left.dtype.kind == "f":
        same &= np.signbit(left) == np.signbit(right)
    assert not (same | (np.isnan(left) & np.isnan(right))).all(), refused.because


@pytest.mark.parametrize(("source", "stays"), [("f64", True), ("bf16", False), ("i32", False)])
def test_zero_is_added_where_a_conversion_may_make_minus_zero(source: str, stays: bool) -> None:
    """A small negative f64 is -0.0 as f32; a sum with 0.0 of the operand's own is none."""

    def write(w: Writer, x: Value) -> Value:
        return w.add(w.cast(w.add(x, x if source == "i32" else w.exp(x)), dtype="f32"), 0.0)

    found = simplify(graph_of(f"{source}[3]", write))
    assert ("zero-added" in {step.rule for step in found.steps}) != stays


def test_positions_that_an_index_cannot_hold_are_gathered() -> None:
    def write(w: Writer, i: Value) -> Value:
        return w.gather(w.at(300, dtype="i8"), i, axis=0)

    found = simplify(graph_of("i8[5]", write)).graph
    assert "gather" in {node.op for node in found.nodes}


@pytest.mark.parametrize("kind", [DType.I64, DType.U64])
def test_numbers_too_far_apart_for_steps_stay_literals(kind: DType) -> None:
    ends = np.array([kind.limits[0], kind.limits[1], 2**62], kind.numpy)
    middle = np.array([2**63 - 1, kind.limits[1] // 2 + 1], kind.numpy)
    for array in (ends, middle):
        w = Writer()
        x = w.builder.input("x", array.shape, kind)
        graph = w.builder.build([w.add(x, w.builder.constant(array, kind))])
        (got,) = evaluate(simplify(graph).graph, [np.zeros(array.shape, kind.numpy)])
        np.testing.assert_array_equal(got, array)


def test_every_refusal_is_tried() -> None:
    assert {each.name for each in REFUSED} == set(SIDES)


# --- the driver -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_keep_their_interface_and_settle(seed: int) -> None:
    graph = canonical(random_graph(seed, 40, moves=ALL_MOVES))
    found = simplify(graph)
    verify(found.graph)
    assert found.graph == canonical(found.graph)
    assert simplify(found.graph).steps == () and normal_form(found.graph) == found.graph
    assert (found.graph.input_types, found.graph.output_types) == (
        graph.input_types, graph.output_types)  # fmt: skip
    assert [found.graph[i].attrs for i in found.graph.inputs] == [
        graph[i].attrs for i in graph.inputs]  # fmt: skip
    assert simplify(graph) == found, "the same steps every time"


def test_names_of_inputs_and_outputs_stay() -> None:
    w = Writer()
    x = w.builder.input("left", (3,), DType.F32)
    unused = w.builder.input("right", (3,), DType.F32)
    assert unused
    graph = w.builder.build([w.mul(x, 1.0), w.neg(x)], ["same", "other"])
    found = simplify(graph).graph
    assert found.input_names == ("left", "right") and found.output_names == ("same", "other")
    assert found.outputs[0] == Value(found.inputs[0])


def test_equal_graphs_keep_names_of_their_own() -> None:
    def named(name: str) -> Graph:
        w = Writer()
        x = w.builder.input(name, (3,), DType.F32)
        return w.builder.build([w.exp(w.mul(x, 1.0))], [f"of {name}"])

    one, other = (normal_form(named(name)) for name in ("left", "right"))
    assert one == other and one.input_names + other.input_names == ("left", "right")
    assert one.output_names + other.output_names == ("of left", "of right")


def test_rewriting_does_not_duplicate_what_others_read() -> None:
    """An elementwise op that something else reads is not computed again for a slice of it."""

    def write(w: Writer, x: Value, y: Value) -> tuple[Value, Value]:
        whole = w.exp(w.concat(x, y, axis=0))
        return whole, w.cut(whole, 0, 0, 4)

    found = simplify(graph_of("f32[4] f32[5]", write)).graph
    assert [node.op for node in found.nodes].count("exp") == 1


def readers(op: str, graph: Graph) -> list[str]:
    """The ops that read the one node of this op."""
    (at,) = (n for n, node in enumerate(graph.nodes) if node.op == op)
    return sorted(graph[user].op for user in graph.users[at])


def test_a_stencil_of_what_is_written_anyway_reads_it_there() -> None:
    """Its parts would have to be written too. What takes one part alone reads that."""

    def bordered(x: Any) -> Any:
        return xp.concat([x[:1], xp.exp(x[1:-1]), x[-1:]], axis=0)

    def stencil(x: Any) -> Any:
        y = bordered(x)
        return y, y[:-2] + y[1:-1] * y[2:]

    def inside(x: Any) -> Any:
        y = bordered(x)
        return y, y[1:-1] * 2.0

    def border(x: Any) -> Any:
        y = bordered(x)
        return y, y[:1] * 2.0

    found = [normal_form(trace(fn, spec((9, 4)))) for fn in (stencil, inside, border)]
    assert [readers("exp", graph) for graph in found] == [["concat"], ["concat", "mul"], ["concat"]]
    assert [readers("concat", graph) for graph in found] == [["slice"] * 3, [], []]
    only = normal_form(trace(lambda x: stencil(x)[1], spec((9, 4))))
    assert "concat" in readers("exp", only), "whole rows are joined where that is all there is"


def test_as_written_nothing_is_rewritten() -> None:
    graph = graph_of("f32[3]", lambda w, x: w.neg(w.neg(x)))
    assert normal_form(graph, False) == canonical(graph) != normal_form(graph)


def test_rules_that_go_in_circles_are_named() -> None:
    names = ("toy-there", "toy-back")

    @rule(names[0], "nobody", "sin")
    def there(draft: Draft, at: int) -> Value:
        """sin -> cos."""
        return draft.add("cos", *draft[at].inputs)

    @rule(names[1], "nobody", "cos")
    def back(draft: Draft, at: int) -> Value:
        """cos -> sin."""
        return draft.add("sin", *draft[at].inputs)

    try:
        with pytest.raises(GraphError, match="in circles: toy-back, toy-there"):
            simplify(graph_of("f32[3]", lambda w, x: w.sin(x)))
    finally:
        for name in names:
            del RULES[name]


def test_values_of_other_types_are_refused() -> None:
    @rule("toy-wrong", "nobody", "sin")
    def wrong(draft: Draft, at: int) -> Value:
        """Another shape."""
        return draft.full(0.0, TensorType((7,), DType.F32))

    try:
        with pytest.raises(GraphError, match="values of other types"):
            simplify(graph_of("f32[3]", lambda w, x: w.sin(x)))
    finally:
        del RULES["toy-wrong"]


def test_programs_written_differently_meet() -> None:
    def plain(w: Writer, x: Value, y: Value) -> Value:
        return w.concat(w.mul(x, 2.0), y, axis=0)

    def masked(w: Writer, x: Value, y: Value) -> Value:
        low = w.pad(w.mul(2.0, x), w.number(0.0), low=(0, 0), high=(5, 0))
        high = w.pad(w.neg(w.neg(y)), w.number(0.0), low=(4, 0), high=(0, 0))
        return w.select(w.lt(w.at(9, 3), 4), low, high)

    one, other = (graph_of("f32[4,3] f32[5,3]", w) for w in (plain, masked))
    assert digest(one) != digest(other)
    assert digest(normal_form(one)) == digest(normal_form(other))


def test_the_page_of_rules_is_up_to_date(request: pytest.FixtureRequest) -> None:
    page, text_ = PAGE, "\n".join(simplifications_page()) + "\n"
    if request.config.getoption("--update-golden"):
        page.write_text(text_, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text_, "run with --update-golden"
