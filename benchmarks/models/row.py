"""One network: each system loaded, checked against float64, timed in turns."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from autofuse.interop.torch.report import GraphReport
from autofuse.limits import usable_cores
from autofuse.peers.interleave import take_turns
from benchmarks.models.systems import EAGER, OURS, SYSTEMS, TUNED, Call, Served
from benchmarks.models.types import Built, Network
from benchmarks.run import sentence
from benchmarks.torch_results import floats, largest_error

# Results farther than this from those of float64, in parts of the largest, and farther than twice
# what PyTorch's own are, are wrong.
WRONG = 1e-3
_SAMPLES = 5, 60


@dataclass(frozen=True, slots=True)
class NetworkAsked:
    """Items at once; seconds of tuning (0: only untuned), and of taking turns; systems by name."""

    batch: int
    budget_s: float
    timing_s: float
    systems: tuple[str, ...]


def network_row(network: Network, asked: NetworkAsked) -> dict[str, Any]:
    """What is to be told of one network. A system that is absent or fails says so in its cell.
    `hears`: how far results change with the input; a network that does not hear checks nobody."""
    torch.manual_seed(0)
    torch.set_num_threads(usable_cores())
    with TemporaryDirectory() as folder, torch.no_grad():
        os.environ["AUTOFUSE_CACHE"] = str(Path(folder) / "cache")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "inductor")
        built = network.build(asked.batch)
        built.model.eval()
        liven(built)
        served = Served(built, Path(folder), asked.budget_s)
        wanted = _truth(built)
        hears = largest_error(_truth(replace(built, args=_others(built.args))), wanted)
        cells: dict[str, dict[str, Any]] = {}
        calls: dict[str, Call] = {}
        for name in asked.systems:
            if name != TUNED or asked.budget_s > 0:
                cells[name] = _loaded(name, served, wanted, calls)
        _judge(cells)
        turns = take_turns(calls, lambda: None, asked.timing_s, samples=_SAMPLES)
        for name, samples in turns.items():
            cells[name] |= {"us": quantiles(samples, n=4), "samples": len(samples)}
    parameters = sum(p.numel() for p in built.model.parameters())
    return {"parameters": parameters, "load": os.getloadavg()[0], "systems": cells, "hears": hears,
            "over": over(cells), **_cut(served.last)}  # fmt: skip


def liven(built: Built) -> None:
    """Convolutions that keep the size of what passes (He et al. 2015, arXiv 1502.01852), and norms
    over batches with the statistics of the arguments, as training would leave them: of what passes
    the weights that some networks begin with nothing is left after fifty layers."""
    parts = [*built.model.modules()]
    for part in parts:
        if isinstance(part, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
            torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    norms = [part for part in parts if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train().momentum = 1.0
    if norms:
        built.model(*built.args)
    built.model.eval()


def _others(args: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Other numbers, and other tokens."""
    return tuple(torch.randn_like(a) if a.is_floating_point() else 3 + (a + 97) % 800 for a in args)


def _truth(built: Built) -> list[Tensor]:
    """What the network gives in float64, by PyTorch."""
    model = deepcopy(built.model).double()
    return floats(model(*(a.double() if a.is_floating_point() else a for a in built.args)))


def _loaded(
    name: str, served: Served, wanted: Sequence[Tensor], calls: dict[str, Call]
) -> dict[str, Any]:
    """Seconds to the first results of a system, and how far these are from the truth."""
    system = SYSTEMS[name]
    if system.absent:
        return {"failed": f"not here: {', '.join(system.absent)}"}
    torch._dynamo.reset()
    try:
        exporting = time.perf_counter()
        _ = served.onnx if system.exported else None
        begun, held = time.perf_counter(), _peak_gb()
        call = system.load(served)
        found = call()
        cell = {"first_s": time.perf_counter() - begun, "export_s": begun - exporting,
                "error": largest_error(found, wanted), "grew_gb": _peak_gb() - held}  # fmt: skip
    except Exception as error:  # of a peer or of ours: the table names it
        return {"failed": sentence(error)}
    calls[name] = call
    return cell


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _judge(cells: Mapping[str, dict[str, Any]]) -> None:
    limit = max(WRONG, 2 * cells.get(EAGER, {}).get("error", 0.0))
    for cell in cells.values():
        if "error" in cell:
            cell["right"] = cell["error"] <= limit


def over(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By ours and peer: the peer's median time over ours. What is wrong has none."""
    timed = {n: cell["us"][1] for n, cell in cells.items() if "us" in cell and cell["right"]}
    return {ours: {peer: us / timed[ours] for peer, us in timed.items() if peer not in OURS}
            for ours in OURS if ours in timed}  # fmt: skip


def _cut(graphs: Sequence[GraphReport]) -> dict[str, Any]:
    """How PyTorch's graphs were cut, and what serves in the place of plans."""
    islands = [island for graph in graphs for island in graph.islands]
    return {
        "graphs": len(graphs),
        "nodes": sum(graph.nodes for graph in graphs),
        "islands": len(islands),
        "kernels": sum(island.kernels for island in islands),
        "left": [str(one) for graph in graphs for one in graph.left],
        "instead": [graph.instead for graph in graphs if graph.instead],
    }
