"""How indices flow through a fusion from its roots down: what the duplication guard counts.

The root is evaluated at one index. An op of its user's shape (or below a transpose) is evaluated
at the indices of its user; any other op makes an index of its own. An instruction below several
distinct indices is emitted once for each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autofuse.baselines.xla.shapes import Fact

ROOT = -1


class Flow:
    """Index sources, element reuse and enclosing loops of every node of a fusion and of every
    node it reads."""

    def __init__(
        self,
        facts: Sequence[Fact | None],
        shapes: Sequence[tuple[int, ...]],
        nodes: Collection[int],
        roots: Collection[int],
        root_count: int = 1,
    ) -> None:
        self.facts, self.shapes = facts, shapes
        self.sources: dict[int, set[int]] = {r: {ROOT} for r in roots}
        self.count: dict[int, int] = {ROOT: root_count}
        self.reused: set[int] = set()
        self.looped: set[int] = set()
        for node in sorted(nodes, reverse=True):  # users before what they read
            self._pass_down(node)

    def emitted(self, node: int) -> int:
        """How many times `node` is emitted when it is (or were) part of this fusion."""
        return sum(self.count[s] for s in self.sources.get(node, ()))

    def extend(self, node: int) -> None:
        """Take in one more node, which until now was read by the fusion."""
        self._pass_down(node)

    def _pass_down(self, node: int) -> None:
        fact = self.facts[node]
        assert fact is not None, "inputs and constants are not fused"
        mine = self.sources.setdefault(node, {ROOT})
        self.count[node] = self.emitted(node)
        for value in fact.operands:
            below = self.sources.setdefault(value.node, set())
            if fact.keeps_index or self.shapes[value.node] == fact.shape:
                below |= mine
            else:
                below.add(node)
            if fact.repeats(value) or node in self.reused:
                self.reused.add(value.node)
            if fact.loops or node in self.looped:
                self.looped.add(value.node)
