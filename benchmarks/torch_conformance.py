"""The cases that ship inside torch (OpInfo), through the rules for aten overloads and held against
torch itself on a CPU.

A case is one sample of one operator and dtype. It is traced and decomposed as the front end does
it, and our float64 reference of the graph is held against torch: it passes within the tolerance
that torch.testing has for the dtype, or, where torch itself rounds worse than that, when torch's
result is within what the reference allows any candidate. It is refused by a rule, wrong, or broken
(any other exception). Not counted are cases with an overload that has no rule or a dtype that
graphs do not have (they stay torch's), those that cannot be traced, and those whose results torch
leaves open.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.torch_fx import FxNode, decompositions, fx_graph, refusal
from autofuse.frontends.torch_rules import RULES
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.measure.check import check, reference_of
from autofuse.ops.dtypes import DType
from autofuse.peers.types import BenchError

PASSED, REFUSED, WRONG, BROKEN, FOREIGN = "passed", "refused", "wrong", "broken", "foreign"
SUITE = "torch.testing._internal.common_methods_invocations"
DTYPES = ("float32", "int64", "bool", "bfloat16")
SEED = 7
# Operators whose results torch leaves open.
OPEN = {
    "empty": "nobody says what is in it",
    "empty_like": "nobody says what is in it",
    "empty_permuted": "nobody says what is in it",
    "empty_strided": "nobody says what is in it",
    "new_empty": "nobody says what is in it",
    "new_empty_strided": "nobody says what is in it",
    "resize_": "nobody says what is in it",
    "resize_as_": "nobody says what is in it",
}
# Where equal elements were is left open.
TIES = ("topk",)
Say = Callable[[str], None]


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
        return tuple(import_module(SUITE).op_db)
    except ImportError as error:
        raise BenchError(f"the suite is part of torch: {error}") from None


def cases_of(operator: Any, most: int | None = None) -> Iterator[TorchCase]:
    """The samples of an operator, the same in every run: all of them, or `most` of each dtype."""
    torch = import_module("torch")
    variant = f".{operator.variant_test_name}" if operator.variant_test_name else ""
    group = f"{operator.name}{variant}"
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in operator.supported_dtypes("cpu"):
            continue
        torch.manual_seed(SEED)
        np.random.seed(SEED)
        samples = list(enumerate(operator.sample_inputs("cpu", dtype)))
        step = 1 if most is None else -(-len(samples) // most)
        for number, sample in samples[::step]:
            yield _case(operator, group, f"{group}:{name}:{number}", sample)


def _case(operator: Any, group: str, name: str, sample: Any) -> TorchCase:
    torch = import_module("torch")
    pytree = torch.utils._pytree
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: Any) -> list[Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        made = pytree.tree_leaves(operator.op(first, *args, **kwargs))
        return [each for each in made if isinstance(each, torch.Tensor)]

    return TorchCase(group, name, function, tuple(leaves[k].detach() for k in places))


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
    names = tuple(sorted({str(n.target) for n in traced.calls}))
    without = [n for n in names if n not in RULES and not n.startswith("<built-in")]
    if without:
        return FOREIGN, f"no rule: {without[0]}", names
    try:
        said = [text for text in map(refusal, traced.calls) if text is not None]
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
    return np.array((tensor.float() if half else tensor).resolve_conj().resolve_neg().numpy())


def _difference(
    graph: Graph, inputs: Sequence[np.ndarray], wanted: Sequence[Any], compared: int
) -> str:
    """What differs among the first `compared` results; nothing where torch and we agree."""
    torch = import_module("torch")
    found = evaluate(graph, inputs)
    try:
        for ours, theirs in list(zip(found, wanted, strict=True))[:compared]:
            made = torch.from_numpy(np.array(ours)).to(theirs.dtype)
            torch.testing.assert_close(made, theirs, equal_nan=True, check_stride=False)
    except AssertionError as error:
        said = str(error).strip().splitlines()[0]
    else:
        return ""
    stored = [_stored(t, dtype.dtype) for t, dtype in zip(wanted, graph.output_types, strict=True)]
    allowed = check(stored, reference_of(graph, inputs))
    return "" if allowed.ok else f"{said} {allowed.message}"[:200]


def _stored(tensor: Any, dtype: DType) -> np.ndarray:
    return _array(tensor).astype(dtype.numpy)


def run_cases(
    chosen: Sequence[Any], every: int = 1, most: int | None = None, say: Say = lambda _: None
) -> list[TorchOutcome]:
    """Every `every`-th case of the operators `chosen`, one after another; with `most` only so many
    of an operator and dtype, spread over all of them."""
    table = decompositions()
    found: list[TorchOutcome] = []
    number = 0
    for position, operator in enumerate(chosen, 1):
        for case in cases_of(operator, most):
            number += 1
            if number % every == 0:
                found.append(outcome_of_case(case, table))
        if position % 25 == 0 or position == len(chosen):
            say(f"{position} of {len(chosen)} operators: {summary(found)}")
    return found


def summary(outcomes: Sequence[TorchOutcome]) -> str:
    """The counts in one line."""
    count = Counter(o.status for o in outcomes)
    counted = len(outcomes) - count[FOREIGN]
    share = 100 * count[PASSED] / max(1, counted)
    rest = ", ".join(f"{count[s]} {s}" for s in (REFUSED, WRONG, BROKEN))
    return (
        f"{count[PASSED]} of {counted} pass ({share:.1f} %), {rest}; {count[FOREIGN]} not counted"
    )


def record_of(outcomes: Sequence[TorchOutcome], most: int | None = None) -> dict[str, Any]:
    """What the file holds: how many cases of an operator and dtype were run at most, counts by
    operator, the overloads that cases passed with, the rules that none did, and every counted case
    that did not pass with its reason, by reason; and for what is not counted how many cases by
    reason."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    gaps: dict[str, list[str]] = defaultdict(list)
    passed = {n for o in outcomes if o.status == PASSED for n in o.overloads} & set(RULES)
    for each in outcomes:
        groups[each.group][each.status] += 1
        if each.status not in (PASSED, FOREIGN):
            gaps[f"{each.status}: {each.told}"].append(each.name)
    foreign = Counter(o.told for o in outcomes if o.status == FOREIGN)
    return {
        "torch": import_module("torch").__version__,
        "most": most,
        "summary": summary(outcomes),
        "overloads": sorted(passed),
        "rules without a case": sorted(set(RULES) - passed),
        "operators": {name: dict(sorted(groups[name].items())) for name in sorted(groups)},
        "gaps": {reason: sorted(names) for reason, names in sorted(gaps.items())},
        "not counted": dict(sorted(foreign.items())),
    }


def write_record(path: Path, outcomes: Sequence[TorchOutcome], most: int | None = None) -> None:
    """The record as JSON."""
    path.write_text(json.dumps(record_of(outcomes, most), indent=1) + "\n", encoding="utf-8")
