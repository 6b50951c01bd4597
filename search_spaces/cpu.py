"""Launch parameters of CPU kernels.

threads: of our own pool that run a kernel, the caller among them. tile: items per vector loop (item
form). stage: keep heavy rows in scratch (row form). unroll: trips of a counted loop at a time.
stream: write results past the cache. vector: preferred vector width in bits. math: "relaxed" lets
the compiler reassociate and use reciprocals. impl: BLAS or generated loops.
"""

from __future__ import annotations

import os

from autofuse.graph.types import Graph
from autofuse.kernel.gemm import blas_form
from autofuse.plan.forms import Form
from autofuse.plan.groups import reads
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.launch import Chooser

# Below this many elements a second thread costs more than it brings (measured: about 2 us).
SERIAL_WORK = 1 << 13
# Results larger than this leave the cache anyway before anyone reads them.
STREAM_BYTES = 1 << 25


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuLaunchSpace:
    """See the module text for the parameters."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        if group.body is not None:
            return "body"
        if blas_form(graph, group) is not None:
            return "gemm"
        form = _form(graph, group)
        if form is not None and form.carries:
            return "loop"
        return "item" if form is None else form.kind

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        kind = self.kind(graph, group)
        threads = 1 if _work(graph, group) < SERIAL_WORK else cores()
        stream = _streamable(graph, group)
        if kind == "row":
            return LaunchConfig.of(threads=threads, stage=True, stream=stream)
        if kind == "item":
            return LaunchConfig.of(threads=threads, tile=1024, stream=stream)
        if kind == "loop":
            return LaunchConfig.of(threads=threads, tile=_loop_tile(graph, group, 256, threads))
        return LaunchConfig.of(threads=threads) if kind == "gemm" else LaunchConfig()

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, unroll: int, strided: bool
    ) -> LaunchConfig:
        """The default: a GPU's launch says nothing about this device."""
        return self.default(graph, group)

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        kind = self.kind(graph, group)
        if kind == "body":
            return LaunchConfig()
        settings: dict[str, Setting] = {}
        default = dict(self.default(graph, group).settings)

        def pick(name: str, options: tuple[Setting, ...]) -> Setting:
            # A default first keeps "nothing chosen" meaning the default configuration.
            first = default.get(name, options[0])
            ordered = (first, *(o for o in options if o != first))
            return chooser(f"{prefix}.{kind}.{name}.{first}", ordered)

        settings["threads"] = pick("threads", tuple(dict.fromkeys((cores(), 1))))
        if kind == "gemm":
            settings["impl"] = pick("impl", ("blas", "loops"))
            return LaunchConfig.of(**settings)
        settings["math"] = pick("math", ("strict", "relaxed"))
        settings["vector"] = pick("vector", (512, 256))
        if kind == "row":
            settings["stage"] = pick("stage", (True, False))
        if kind == "loop":
            tile = int(pick("tile", (256, 64, 128, 512, 1024)))
            settings["tile"] = _loop_tile(graph, group, tile, int(settings["threads"]))
            settings["unroll"] = _fitting(graph, group, int(pick("unroll", (1, 2, 4))))
        if kind == "item":
            settings["tile"] = pick("tile", (1024, 256, 4096, 16384))
        if kind in ("item", "row") and _streamable(graph, group):
            settings["stream"] = pick("stream", (True, False))
        return _canonical(settings, default)


def _canonical(settings: dict[str, Setting], default: dict[str, Setting]) -> LaunchConfig:
    """Leave out what equals the printer's own default, so equal kernels are equal candidates."""
    silent: dict[str, Setting] = {"vector": 512, "math": "strict", "unroll": 1}
    kept = {k: v for k, v in settings.items() if silent.get(k) != v}
    return LaunchConfig.of(**{**{k: v for k, v in default.items() if k not in settings}, **kept})


def _form(graph: Graph, group: FusionGroup) -> Form | None:
    verdict = check_group(graph, group.nodes, group.outputs)
    if isinstance(verdict, Refusal):
        return None
    return max(verdict, key=lambda f: f.items)


def _loop_tile(graph: Graph, group: FusionGroup, tile: int, threads: int) -> int:
    """No tile so large that a thread goes without work."""
    form = _form(graph, group)
    share = tile if form is None else max(16, -(-form.items // max(threads, 1)))
    return min(tile, share)


def _fitting(graph: Graph, group: FusionGroup, unroll: int) -> int:
    """The factor if it divides the trips of every loop of the group, else none."""
    trips = [graph.call(n)["trip"] for n in group.nodes if graph[n].op == "loop"]
    return unroll if all(trip % unroll == 0 for trip in trips) else 1


def _work(graph: Graph, group: FusionGroup) -> float:
    sizes = [graph.type_of(v).size for v in (*group.outputs, *reads(graph, group.nodes))]
    flops = sum(graph[n].spec.flops(graph.call(n)) for n in group.nodes)
    return max(max(sizes, default=0), flops / 16)


def _streamable(graph: Graph, group: FusionGroup) -> bool:
    """Large results that no later kernel of the plan could find in the cache."""
    written = sum(graph.type_of(v).nbytes for v in group.outputs)
    leaves = set(graph.outputs)
    return written >= STREAM_BYTES and all(v in leaves for v in group.outputs)
