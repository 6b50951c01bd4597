"""The float64 reference by compiled code, held to NumPy.

`CompiledRuns` stands for `autofuse.graph.reference.Runs`. What `truth_plan` says is compiled, the
rest is evaluated by NumPy's definition, node by node. Before anything compiled is believed, it is
compared with NumPy's definitions: kernels at drawn places of their results, loops in whole
iterations (the first, drawn ones, the last) from the states that the compiled code came to. Where
they disagree NumPy decides, and `notes` says so.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from autofuse.backends.base import CompileError, CompilerMissing, LaunchError
from autofuse.backends.cache import CacheError
from autofuse.graph import reference
from autofuse.graph.noise import Noise
from autofuse.graph.reference import MOST_TRIPS, Runs, endless, untouched_products
from autofuse.graph.types import Graph, Value
from autofuse.measure.check.compare import poison
from autofuse.measure.truth.build import LateTruthError, LoopBuffers, TruthLibrary, TruthPlan
from autofuse.measure.truth.checks import difference, kernel_difference
from autofuse.measure.truth.cost import compile_s, numpy_s
from autofuse.measure.truth.plan import ByNumPy, TruthItem, TruthKernel, TruthLoop, trips
from autofuse.measure.truth.products import (
    by_rows,
    by_taps,
    is_product,
    is_shared,
    product_difference,
)
from autofuse.measure.truth.threads import one_thread_of_blas
from autofuse.ops.control import is_counted

Arrays = tuple[np.ndarray, ...]
_LOG = logging.getLogger("autofuse.truth")
# By how much a reference takes longer than one run of NumPy's: it runs nine times, with noise but
# for the first, which makes NumPy take two to three times as long.
RUNS = 20
# Iterations of a compiled loop that are compared with NumPy's, besides the last.
_COMPARED = (0, 1)


class CompiledRuns:
    """As `Runs`: outputs of a graph on the same inputs, with other noise in each call. Compiled
    where NumPy would take longer than `worth_s` for one run (None: than a compiler, for the RUNS of
    a reference) and there is a compiler; `limit_s` is the time that all calls together may take,
    `notes` what was found wrong.

    Raises GraphError when the inputs do not fit, LateTruthError when time is over."""

    def __init__(
        self, graph: Graph, inputs: Sequence[np.ndarray], worth_s: float | None = None,
        limit_s: float = math.inf,
    ) -> None:  # fmt: skip
        self._graph, self._runs = graph, Runs(graph, inputs)
        self._end = time.perf_counter() + limit_s
        self.notes: list[str] = []
        self._library: TruthLibrary | None = None
        self._products: dict[int, Arrays] = dict.fromkeys(untouched_products(graph), ())
        self._sizes: reference.FoldSizes = {}
        self._believed: set[str] = set()
        self._refused: set[str] = set()
        if numpy_s(graph) >= (compile_s(graph) / RUNS if worth_s is None else worth_s):
            try:
                self._library = TruthLibrary(graph, self._end)
            except (CompileError, CompilerMissing, LaunchError, CacheError, OSError) as error:
                self.notes.append(f"the reference is computed by NumPy alone: {error}")

    @property
    def compiled(self) -> bool:
        """Whether anything is computed by compiled code."""
        return self._library is not None and not self._library.empty

    def __call__(self, noise: Noise | None = None) -> Arrays:
        """Outputs: float ones are float64 arrays, others have their exact dtype."""
        with one_thread_of_blas():
            return _Run(self, noise).outputs()


class _Run:
    """One run of a graph, nodes in order."""

    def __init__(self, owner: CompiledRuns, noise: Noise | None) -> None:
        self.owner, self.noise = owner, noise
        self.library = owner._library
        self.state = None if self.library is None else self.library.state(noise)

    def outputs(self) -> Arrays:
        graph, owner = self.owner._graph, self.owner
        with np.errstate(all="ignore"):
            return self._graph(graph, owner._runs.inputs, owner._products)

    def _plan(self, graph: Graph) -> TruthPlan | None:
        return None if self.library is None else self.library.plans.get(graph)

    def _graph(
        self, graph: Graph, inputs: Arrays, products: dict[int, Arrays] | None = None
    ) -> Arrays:
        plan = self._plan(graph)
        items = _by_numpy(graph) if plan is None else plan.items
        known = {Value(i): a for i, a in zip(graph.inputs, inputs, strict=True)}
        for i, node in enumerate(graph.nodes):
            if node.op == "constant":
                known[Value(i)] = node.spec.reference((), graph.call(i))[0]
        for at, (item, last) in enumerate(zip(items, _last_reads(graph, items), strict=True)):
            self._in_time()
            results = self._item(graph, plan, at, item, known, products)
            known.update(results)
            for value in last:
                known.pop(value, None)
        return tuple(known[v] for v in graph.outputs)

    def _in_time(self) -> None:
        if time.perf_counter() > self.owner._end:
            raise LateTruthError("the reference was not computed in time")

    def _item(
        self, graph: Graph, plan: TruthPlan | None, at: int, item: TruthItem,
        known: dict[Value, np.ndarray], products: dict[int, Arrays] | None,
    ) -> dict[Value, np.ndarray]:  # fmt: skip
        if isinstance(item, TruthKernel):
            assert plan is not None
            return self._kernel(graph, plan, at, item, known)
        i = item.node
        operands = tuple(known[v] for v in item.reads)
        kept = {} if products is None else products
        results = kept.get(i, ())
        if not results:
            results = self._node(graph, plan, i, operands, isinstance(item, TruthLoop))
            if i in kept:
                kept[i] = results
        sizes = self.owner._sizes if graph is self.owner._graph else None
        fast = partial(self._product, graph, i) if is_product(graph, i) else None
        results = reference.noisy(graph, i, operands, results, self.noise, sizes, fast)
        return {Value(i, k): array for k, array in enumerate(results)}

    def _node(
        self, graph: Graph, plan: TruthPlan | None, i: int, operands: Arrays, compiled: bool
    ) -> Arrays:
        node = graph[i]
        if compiled and plan is not None and node in plan.loops:
            name, arena = plan.loops[node]
            if name not in self.owner._refused:
                found = self._loop(graph, i, operands, name, arena)
                if found is not None:
                    return found
        if is_product(graph, i):
            return self._product(graph, i, operands)
        return reference.apply(graph, i, operands, self._graph)

    def _product(self, graph: Graph, i: int, operands: Arrays) -> Arrays:
        """A product on all cores, a convolution by taps unless that is found wrong."""
        if is_shared(graph, i):
            return (by_rows(operands, graph.call(i)),)
        found = self._convolution(graph, i, operands)
        return graph[i].spec.reference(operands, graph.call(i)) if found is None else found

    def _convolution(self, graph: Graph, i: int, operands: Arrays) -> Arrays | None:
        """A convolution tap by tap; None where it is found wrong."""
        call, name = graph.call(i), f"convolution of {graph.call(i)}"
        if name in self.owner._refused:
            return None
        made = by_taps(operands, call)
        if self.noise is None and name not in self.owner._believed:
            found = product_difference(operands, made, call, seed=i)
            if found:
                self._refuse(name, "conv", found)
                return None
            self.owner._believed.add(name)
        return (made,)

    def _kernel(
        self,
        graph: Graph,
        plan: TruthPlan,
        at: int,
        item: TruthKernel,
        known: dict[Value, np.ndarray],
    ) -> dict[Value, np.ndarray]:
        name, text = plan.kernels.get(at, ("", None))
        if text is None or name in self.owner._refused:
            return self._by_definition(graph, item, known)
        assert self.library is not None and self.state is not None
        made = _room(graph, item, name not in self.owner._believed)
        reads = [np.ascontiguousarray(known[v]) for v in item.reads]
        self.library.kernel(name, text, [*reads, *made], self.state)
        if self.noise is None and name not in self.owner._believed:
            found = kernel_difference(graph, item, known, made, seed=at)
            if found:
                self._refuse(name, ", ".join(dict.fromkeys(graph[i].op for i in item.nodes)), found)
                return self._by_definition(graph, item, known)
            self.owner._believed.add(name)
        return dict(zip(item.outs, made, strict=True))

    def _refuse(self, name: str, what: str, found: str) -> None:
        self.owner._refused.add(name)
        note = f"compiled code of the reference is wrong, NumPy computes it: {what}: {found}"
        _LOG.warning(note)
        self.owner.notes.append(note)

    def _by_definition(
        self, graph: Graph, item: TruthKernel, known: dict[Value, np.ndarray]
    ) -> dict[Value, np.ndarray]:
        """The nodes of a kernel by NumPy, and what is moved for them."""
        made = known.copy()

        def value(v: Value) -> np.ndarray:
            if v not in made:
                made[v] = graph[v.node].spec.reference(
                    tuple(map(value, graph[v.node].inputs)), graph.call(v.node)
                )[v.index]
            return made[v]

        for i in item.nodes:
            operands = tuple(map(value, graph[i].inputs))
            results = graph[i].spec.reference(operands, graph.call(i))
            results = reference.noisy(graph, i, operands, results, self.noise)
            made.update((Value(i, k), array) for k, array in enumerate(results))
        return {v: made[v] for v in item.outs}

    def _loop(self, graph: Graph, i: int, operands: Arrays, name: str, arena: int) -> Arrays | None:
        """A compiled loop; None where it is found wrong."""
        assert self.library is not None and self.state is not None
        buffers = LoopBuffers(graph, i, operands)
        scratch = np.empty(arena + 64, np.uint8)
        node, most = graph[i], trips(graph[i])
        counted = is_counted(node.op)
        end = most if counted else min(most, MOST_TRIPS + 1)
        run = partial(self.library.loop, name, scratch, buffers, self.state)
        check = self.noise is None and name not in self.owner._believed
        reached = 0
        for first, last in _pieces(end, counted, check):
            self._in_time()
            if reached < first:
                break
            before = tuple(a.copy() for a in buffers.states) if check and last == first + 1 else ()
            reached = run(first, last)
            if reached < 0:
                raise endless()
            if before and reached == last:
                found = self._iteration(graph, i, first, before, operands, buffers)
                if found:
                    self._refuse(name, f"iteration {first} of a {node.op}", found)
                    return None
        if check:
            self.owner._believed.add(name)
        return (*buffers.states, *buffers.stacked)

    def _iteration(
        self, graph: Graph, i: int, step: int, before: Arrays, operands: Arrays,
        buffers: LoopBuffers,
    ) -> str:  # fmt: skip
        """What one iteration of the compiled code did that NumPy does not."""
        attrs = dict(graph[i].attrs)
        body, carries = attrs["body"], attrs["carries"]
        found = (*buffers.states, *(stack[step] for stack in buffers.stacked))

        def again(noise: Noise | None) -> Arrays:
            run: Callable[[Graph, Arrays], Arrays] = partial(reference.run, noise=noise)
            given = (np.asarray(step, np.int32), *before, *operands[carries:])
            results = run(body, given)
            if is_counted(graph[i].op):
                return results
            return reference.kept(results, before) if before[0].any() else before

        return difference([np.asarray(a) for a in found], again(None), again)


def _room(graph: Graph, item: TruthKernel, poisoned: bool) -> Arrays:
    types = [graph.type_of(v) for v in item.outs]
    made = tuple(np.empty(t.shape, t.dtype.reference) for t in types)
    for array in made if poisoned else ():  # memory may hold what was right in a run before
        poison(array)
    return made


def _pieces(end: int, counted: bool, check: bool) -> list[tuple[int, int]]:
    """Runs of iterations: those of one iteration are compared with NumPy's."""
    if not check:
        return [(0, end)]
    alone = {k for k in _COMPARED if k < end}
    if counted:
        alone |= {end - 1, (2 * end) // 3} & set(range(end))
    else:
        alone |= {k for k in (7, 100) if k < end}
    cuts = sorted({0, end, *alone, *(k + 1 for k in alone)})
    return list(pairwise(cuts))


@lru_cache(maxsize=64)
def _by_numpy(graph: Graph) -> tuple[TruthItem, ...]:
    """Every node by its definition."""
    return tuple(ByNumPy(i, n.inputs) for i, n in enumerate(graph.nodes) if n.op != "input")


@lru_cache(maxsize=64)
def _last_reads(graph: Graph, items: tuple[TruthItem, ...]) -> list[list[Value]]:
    """For each item, the values that nothing after it reads."""
    last: dict[Value, int] = {}
    for at, item in enumerate(items):
        made = item.outs if isinstance(item, TruthKernel) else tuple(
            Value(item.node, k) for k in range(len(graph[item.node].types))
        )  # fmt: skip
        last.update((v, at) for v in (*made, *item.reads))
    for value in graph.outputs:
        last.pop(value, None)
    found: list[list[Value]] = [[] for _ in items]
    for value, at in last.items():
        found[at].append(value)
    return found


def expected(graph: Graph, inputs: Sequence[np.ndarray], limit_s: float = math.inf) -> Arrays:
    """Outputs of one exact run. Raises LateTruthError after about `limit_s`, GraphError."""
    return CompiledRuns(graph, inputs, limit_s=limit_s)()
