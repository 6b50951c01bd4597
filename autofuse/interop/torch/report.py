"""What became of a graph of PyTorch, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IslandReport:
    """An island: nodes of PyTorch's graph, computing ops of ours, kernels, where the plan comes
    from, the digest that equal islands share, the device of ours whose plan it is, where its
    tensors are, and what a check of it found ("" where nothing was built)."""

    nodes: int
    ops: int
    kernels: int
    origin: str
    digest: str
    device: str
    place: str
    checked: str = ""

    def __str__(self) -> str:
        where = self.place if self.place.startswith(self.device) else f"{self.device}, {self.place}"
        text = f"{self.nodes} nodes in {self.kernels} kernels on {where}"
        told = ", ".join(filter(None, (self.origin, self.checked)))
        return f"{text} ({told}), {self.digest[:12]}"


@dataclass(frozen=True, slots=True)
class LeftReport:
    """Nodes of one op that PyTorch computes, for one reason."""

    op: str
    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.op}{f' x {self.count}' if self.count > 1 else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A graph: how many nodes it has, its islands, and what is left to PyTorch; `instead`
    says what of PyTorch's own runs in place of all of it, and why."""

    name: str
    nodes: int
    islands: tuple[IslandReport, ...]
    left: tuple[LeftReport, ...]
    instead: str = ""

    def __str__(self) -> str:
        """One line, as it is logged."""
        if self.instead:
            return f"{self.name}: {self.instead}, and runs"
        inside = sum(island.nodes for island in self.islands)
        word = "island" if len(self.islands) == 1 else "islands"
        text = f"{self.name}: {inside} of {self.nodes} nodes in {len(self.islands)} {word}"
        return text + (f"; left to torch: {'; '.join(map(str, self.left))}" if self.left else "")


@dataclass(frozen=True, slots=True)
class ModelExplanation:
    """What `autofuse.torch.explain` found: a report per graph, forward and backward ones apart, and
    why PyTorch's tracer ended a graph where it did."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[str, ...]

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            lines.append(str(graph))
            lines += [f"  island: {island}" for island in graph.islands]
        return "\n".join([*lines, *(f"graph break: {reason}" for reason in self.breaks)])


def left_reports(left: Sequence[tuple[str, str]]) -> tuple[LeftReport, ...]:
    """Pairs of an op and a reason, counted; the most frequent first."""
    counts = Counter(left)
    return tuple(LeftReport(op, n, why) for (op, why), n in counts.most_common())
