"""Nodes of more outputs than fixed-width keys could tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.cost.work import group_work
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.enumerate.structure import Structures
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import group_digest
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.tuning.search.cover import cover_problem

STATES, TRIP = 300, 3


def body() -> Graph:
    """States of 1, 2, 3, ... elements, each negated."""
    b = GraphBuilder()
    b.input("trip", (), "i32")
    return b.build([b.add("neg", b.input(f"s{k}", (k + 1,), "f32")) for k in range(STATES)])


@pytest.fixture(scope="module")
def graph() -> Graph:
    """The loop, and readers of states that are 64 and 256 apart from outputs of other nodes."""
    b = GraphBuilder()
    states = [b.input(f"x{k}", (k + 1,), "f32") for k in range(STATES)]
    made = b.add_multi("loop", *states, body=body(), trip=TRIP, carries=STATES)
    first = b.add("exp", made[0])
    return b.build([*made, first, b.add("neg", first), b.add("neg", made[STATES - 1])])


def loop_of(graph: Graph) -> int:
    return next(n for n, node in enumerate(graph.nodes) if node.op == "loop")


def test_work_of_every_output_is_its_own(graph: Graph) -> None:
    """The bytes and operations of each state, and of each reader, by hand."""
    loop = loop_of(graph)
    every = tuple(Value(loop, k) for k in range(STATES))
    elements = STATES * (STATES + 1) // 2
    whole = group_work(graph, (loop,), every)
    assert whole.nbytes == 2 * 4 * elements
    assert whole.cheap == TRIP * elements
    # The reader's one element has the number of state 256 if a node is 256 numbers wide.
    joined = group_work(graph, (loop, loop + 1), (*every, Value(loop + 1)))
    assert joined.special == 15 and joined.nbytes == whole.nbytes + 4
    # Read from outside, states count by their own sizes.
    first, last = (group_work(graph, (n,), (Value(n),)).nbytes for n in (loop + 1, loop + 3))
    assert (first, last) == (2 * 4, 2 * 4 * STATES)


def test_structures_tell_every_output_apart() -> None:
    """A reader of output k of the loop is never a reader of the node k places further on."""
    b = GraphBuilder()
    inner = GraphBuilder()
    inner.input("trip", (), "i32")
    same = inner.build([inner.add("neg", inner.input(f"s{k}", (4,), "f32")) for k in range(STATES)])
    states = [b.input(f"x{k}", (4,), "f32") for k in range(STATES)]
    made = b.add_multi("loop", *states, body=same, trip=TRIP, carries=STATES)
    other = b.add("exp", made[0])
    readers = [b.add("neg", made[k]) for k in (0, 1, 63, 64, 65, 128, 255, 256, 257, 299)]
    readers.append(b.add("neg", other))
    graph = b.build(readers)
    shapes, loop = Structures(graph), loop_of(graph)
    keys, digests = set(), set()
    for reader in readers:
        nodes, outputs = (loop, other.node, reader.node), (other, reader)
        keys.add(shapes.key(nodes, outputs))
        digests.add(group_digest(graph, nodes, outputs))
    assert len(digests) == len(readers)
    assert len(keys) == len(readers)
    written = {shapes.key((loop, other.node), (v, other)) for v in made}
    assert len(written) == STATES


def test_a_loop_of_many_states_is_planned_and_evaluated(graph: Graph) -> None:
    found = enumerate_groups(graph)
    assert cover_problem(found).problem.pieces
    loop = loop_of(graph)
    alone = [g for g in found.groups if loop not in g.nodes and len(g.nodes) == 1]
    assert {g.nodes[0] for g in alone} >= {loop + 1, loop + 2, loop + 3}
    inputs = [np.full(t.shape, k, np.float32) for k, t in enumerate(graph.input_types)]
    results = evaluate(graph, inputs)
    assert [float(r.flat[0]) for r in results[:STATES]] == [-float(k) for k in range(STATES)]
