"""What it costs to cut a graph of PyTorch into islands and to write these as graphs of ours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from autofuse.interop.torch.backend import islands_of, piece_of_island
from autofuse.interop.torch.device import Places

# Blocks of ten nodes; one in so many ends with an op that islands do not have.
BLOCKS, APART = 300, 3


@dataclass(frozen=True, slots=True)
class CaptureCost:
    """A graph of so many nodes and islands, and seconds of processor time, simplification
    included."""

    nodes: int
    islands: int
    cut_s: float
    convert_s: float

    def __str__(self) -> str:
        total = self.cut_s + self.convert_s
        return f"{self.nodes} nodes, {self.islands} islands: {total:.2f} s"


def capture_costs() -> tuple[CaptureCost, ...]:
    """Of a graph that is one island, and of one that is a hundred."""
    return _cost(blocks=BLOCKS, apart=0), _cost(blocks=BLOCKS, apart=APART)


def _cost(blocks: int, apart: int) -> CaptureCost:
    def program(x: Any, weight: Any) -> Any:
        for number in range(blocks):
            y = torch.tanh(torch.relu(x @ weight) * 1.5 + x)
            x = x + torch.sigmoid(y) * y - y.mean(-1, keepdim=True)
            if apart and number % apart == 0:
                x = torch.special.bessel_j1(x)
        return x

    given = torch.rand(8, 16), torch.rand(16, 16)
    gm = make_fx(program, tracing_mode="fake")(*given)
    begun = time.process_time()
    places = Places()
    found = islands_of(gm, places)
    between = time.process_time()
    pieces = [piece_of_island(gm, island, {}, places) for island in found.islands]
    ended = time.process_time()
    nodes = sum(node.op == "call_function" for node in gm.graph.nodes)
    return CaptureCost(nodes, len(pieces), between - begun, ended - between)
