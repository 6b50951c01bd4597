"""The cases that ship inside torch (OpInfo), through the rules for aten overloads and held against
torch itself, on a CPU or on a GPU.

A case is one sample of one operator and dtype, or the gradients of one of float32. It is traced and
decomposed as the front end does it, and our float64 reference of the graph is held against torch:
it passes within the tolerance that torch.testing has for the dtype, or, where torch itself rounds
worse than that, when torch's result is within what the reference allows any candidate. It is
refused by a rule, wrong, or broken (any other exception). Not counted are cases with an overload
that has no rule or a dtype that graphs do not have (they stay torch's), those that cannot be
traced, and those whose results torch leaves open.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.torch.fx import FxNode, decompositions, fx_graph, op_name, refusal
from autofuse.frontends.torch.rules import RULES
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.interop.torch.device import CPU
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops.dtypes import DType
from autofuse.peers.types import BenchError

PASSED, REFUSED, WRONG, BROKEN, FOREIGN = "passed", "refused", "wrong", "broken", "foreign"
SUITE = "torch.testing._internal.common_methods_invocations"
DTYPES = ("float32", "int64", "bool", "bfloat16")
SEED = 7
# Gradients are taken of so many samples of an operator.
GRADIENTS = 3
# The tables of operators; those of lists of tensors are apart from the others.
_TABLES = ("op_db", *(f"foreach_{kind}_op_db" for kind in (
    "unary", "binary", "pointwise", "reduce", "other"
)))  # fmt: skip
# Operators whose results torch leaves open.
OPEN = {
    "argsort": "equal elements may be in any order",
    "empty": "nobody says what is in it",
    "empty_like": "nobody says what is in it",
    "empty_permuted": "nobody says what is in it",
    "empty_strided": "nobody says what is in it",
    "new_empty": "nobody says what is in it",
    "new_empty_strided": "nobody says what is in it",
    "resize_": "nobody says what is in it",
    "resize_as_": "nobody says what is in it",
}
# Those whose second result torch leaves open: where equal elements were.
TIES = ("sort", "topk")


@dataclass(frozen=True, slots=True)
class TorchOutcome:
    """What became of one case; `told` is why, where it did not pass. `overloads` were traced."""

    group: str
    name: str
    status: str
    told: str = ""
    overloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TorchCase:
    """One sample of an operator; `function` takes `tensors` and gives a list of results."""

    group: str
    name: str
    function: Callable[..., list[Any]]
    tensors: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced program: its calls, what they read, and what comes out; `module` is what torch can
    run again."""

    module: Any
    calls: tuple[FxNode, ...]
    inputs: tuple[FxNode, ...]
    outputs: tuple[FxNode, ...]
    constants: tuple[Any, ...]

    def again(self, tensors: Sequence[Any]) -> list[Any]:
        """What torch makes of the traced program."""
        return [each.detach() for each in self.module(*tensors)]


def operators() -> Sequence[Any]:
    """Every operator of the suite. Raises BenchError where torch is not here."""
    try:
        suite = import_module(SUITE)
    except ImportError as error:
        raise BenchError(f"the suite is part of torch: {error}") from None
    return tuple(operator for table in _TABLES for operator in getattr(suite, table))


def group_of(operator: Any) -> str:
    """What the cases of an operator are recorded under."""
    variant = f".{operator.variant_test_name}" if operator.variant_test_name else ""
    return f"{operator.name}{variant}"


def cases_of(operator: Any, most: int | None = None, device: str = CPU) -> Iterator[TorchCase]:
    """The samples of an operator on a device, the same in every run: all of them, or `most` of each
    dtype."""
    torch, group = import_module("torch"), group_of(operator)
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype in operator.supported_dtypes(device):
            for number, sample in _samples(operator, dtype, most, False, device):
                yield _case(operator, f"{group}:{name}:{number}", sample)
    if operator.supports_autograd and torch.float32 in operator.supported_dtypes(device):
        fewest = GRADIENTS if most is None else min(most, GRADIENTS)
        for number, sample in _samples(operator, torch.float32, fewest, True, device):
            yield _gradient_case(_case(operator, f"{group}:gradients:{number}", sample), sample)


def _samples(
    operator: Any, dtype: Any, most: int | None, requires_grad: bool, device: str
) -> Sequence[tuple[int, Any]]:
    """Samples under their numbers, spread over all where there are more than `most`."""
    import_module("torch").manual_seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)
    given = operator.sample_inputs(device, dtype, requires_grad=requires_grad)
    samples = list(enumerate(given))
    return samples if most is None else samples[:: max(1, -(-len(samples) // most))]


def _leaves(sample: Any) -> tuple[list[Any], Any, list[int]]:
    """The arguments of a sample laid out flat, their tree, and which of them are tensors."""
    torch = import_module("torch")
    whole = (sample.input, tuple(sample.args), dict(sample.kwargs))
    leaves, tree = torch.utils._pytree.tree_flatten(whole)
    return leaves, tree, [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]


def _case(operator: Any, name: str, sample: Any) -> TorchCase:
    torch = import_module("torch")
    pytree = torch.utils._pytree
    leaves, tree, places = _leaves(sample)

    def function(*tensors: Any) -> list[Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, tree)
        made = pytree.tree_leaves(operator.op(first, *args, **kwargs))
        return [each for each in made if isinstance(each, torch.Tensor)]

    return TorchCase(
        group_of(operator), name, function, tuple(leaves[k].detach() for k in places)
    )  # fmt: skip


def _gradient_case(case: TorchCase, sample: Any) -> TorchCase:
    """The gradients of the sum of the squares of all float results of a case."""
    torch = import_module("torch")
    leaves, _, places = _leaves(sample)
    wanted = [n for n, place in enumerate(places) if leaves[place].requires_grad]

    def function(*tensors: Any) -> list[Any]:
        def total(*chosen: Any) -> Any:
            filled = list(tensors)
            for place, tensor in zip(wanted, chosen, strict=True):
                filled[place] = tensor
            made = [each for each in case.function(*filled) if each.is_floating_point()]
            return sum(each.square().sum() for each in made)

        of = torch.func.grad(total, tuple(range(len(wanted))))
        return list(of(*(tensors[n] for n in wanted)))

    return TorchCase(case.group, case.name, function, case.tensors)


def outcome_of_case(case: TorchCase, table: dict[Any, Any]) -> TorchOutcome:
    """One case; `table` are the decompositions."""
    left_open = OPEN.get(case.group)
    if left_open is not None:
        return TorchOutcome(case.group, case.name, FOREIGN, left_open)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TorchOutcome(case.group, case.name, *_status(case, table))


def _status(case: TorchCase, table: dict[Any, Any]) -> tuple[str, str, tuple[str, ...]]:
    try:
        wanted = case.function(*(t.clone() for t in case.tensors))
        traced = _traced(case, table)
    except Exception as error:  # whatever torch raises: the case is no program
        return FOREIGN, f"torch: {type(error).__name__}", ()
    if not wanted:
        return FOREIGN, "it gives no tensor", ()
    names = tuple(sorted({op_name(n) for n in traced.calls}))
    without = [n for n in names if n not in RULES and not n.startswith("<built-in")]
    if without:
        return FOREIGN, f"no rule: {without[0]}", names
    try:
        asked = ((op_name(n), refusal(n)) for n in traced.calls)
        said = [f"{name}: {why}" for name, why in asked if why is not None]
        if said:
            return _refused(said[0]), said[0], names
        graph = fx_graph(traced.calls, traced.inputs, traced.outputs, case.name)
    except AutofuseError as error:
        return _refused(str(error)), str(error), names
    except Exception as error:  # a fault of ours, which the table shows
        return BROKEN, f"{type(error).__name__}: {error}"[:200], names
    inputs = [_array(t) for t in (*case.tensors, *traced.constants)]
    compared = 1 if case.group in TIES else len(wanted)
    told = _difference(graph, inputs, [w.detach() for w in wanted], compared)
    if told and not _difference(graph, inputs, traced.again(case.tensors), compared):
        return FOREIGN, "torch's own decomposition gives something else", names
    return (WRONG, told, names) if told else (PASSED, "", names)


def _refused(told: str) -> str:
    """What no graph could hold is not counted."""
    return FOREIGN if "dtype torch." in told or "is not static" in told else REFUSED


def _traced(case: TorchCase, table: dict[Any, Any]) -> Traced:
    torch = import_module("torch")
    make_fx = import_module("torch.fx.experimental.proxy_tensor").make_fx
    program = torch.func.functionalize(case.function, remove="mutations")
    module = make_fx(program, decomposition_table=table, tracing_mode="fake")(*case.tensors)
    module.graph.eliminate_dead_code()
    nodes = list(module.graph.nodes)
    given = [n for n in nodes if n.op == "placeholder"]
    own = [n for n in nodes if n.op == "get_attr"]
    calls = tuple(n for n in nodes if n.op == "call_function")
    outputs = tuple(module.graph.output_node().args[0])
    constants = tuple(getattr(module, n.target).detach() for n in own)
    return Traced(module, calls, (*given, *own), outputs, constants)


def _array(tensor: Any) -> np.ndarray:
    """A tensor's elements; halves, which NumPy may not know, as float32."""
    torch = import_module("torch")
    half = tensor.dtype in (torch.bfloat16, torch.float16)
    plain = (tensor.float() if half else tensor).resolve_conj().resolve_neg()
    return np.array(plain.cpu().numpy())


def _difference(
    graph: Graph, inputs: Sequence[np.ndarray], wanted: Sequence[Any], compared: int
) -> str:
    """What differs among the first `compared` results; nothing where torch and we agree."""
    torch = import_module("torch")
    found = evaluate(graph, inputs)
    try:
        for ours, theirs in list(zip(found, wanted, strict=True))[:compared]:
            made = torch.from_numpy(np.array(ours)).to(theirs.dtype)
            torch.testing.assert_close(made, theirs.cpu(), equal_nan=True, check_stride=False)
    except AssertionError as error:
        said = str(error).strip().splitlines()[0]
    else:
        return ""
    stored = [_stored(t, dtype.dtype) for t, dtype in zip(wanted, graph.output_types, strict=True)]
    allowed = check(stored, reference_of(graph, inputs))
    return "" if allowed.ok else f"{said} {allowed.message}"[:200]


def _stored(tensor: Any, dtype: DType) -> np.ndarray:
    return _array(tensor).astype(dtype.numpy)


def run_operator(operator: Any, most: int | None = None, device: str = CPU) -> list[TorchOutcome]:
    """The cases of an operator, one after another; with `most` so many of each dtype."""
    table = _table()
    return [outcome_of_case(case, table) for case in cases_of(operator, most, device)]


@cache
def _table() -> dict[Any, Any]:
    return decompositions()
