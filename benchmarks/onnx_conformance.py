"""The cases that ship inside onnx (onnx.backend.test) through the ONNX front end.

A case passes where every output has the dtype, the shape and, within the case's own tolerance, the
elements that the suite says; what rounding in another order changes is no difference: ULPS units in
the last place of the output's dtype, at its largest element. It is refused by the front end, wrong,
or broken (any other exception). Passes are counted over all cases of a kind: nothing is skipped.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.package import onnx_package
from autofuse.frontends.onnx.read import Imported, OnnxFile, import_for
from autofuse.graph.noise import Noise
from autofuse.graph.reference import evaluate
from autofuse.graph.settled import constant_inputs, settled
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.tuning import compile as compile_graph

PASSED, REFUSED, WRONG, BROKEN = "passed", "refused", "wrong", "broken"
# Our names of the suite's kinds. The files of its real networks are light: weights are computed.
KINDS = {"node": "node", "converted": "pytorch-converted", "operator": "pytorch-operator",
         "light": "real"}  # fmt: skip
Say = Callable[[str], None]
# Units in the last place that rounding in another order may change.
ULPS = 2.0
# Reasons, and the cases that each keeps from passing.
GAPS = Path(__file__).with_name("onnx_gaps.json")
# A graph on arrays, by the model's names of inputs.
Runs = Callable[[Imported, Sequence[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class OnnxCase:
    """A model of the suite, with inputs and what it must give for them."""

    kind: str
    name: str
    model: Any
    folder: Path | None
    sets: Callable[[], list[tuple[list[Any], list[Any]]]]
    rtol: float
    atol: float

    @property
    def group(self) -> str:
        """The operators of the model, most of which have one."""
        ops = sorted({node.op_type for node in self.model.graph.node})
        return ops[0] if len(ops) == 1 else f"{self.kind}: several"


@dataclass(frozen=True, slots=True)
class OnnxOutcome:
    """What became of one case; `told` is why, where it did not pass. `folded`: the graph computes
    nothing, since all was known when it was made."""

    case: str
    kind: str
    group: str
    status: str
    told: str = ""
    folded: bool = False


def cases_of_kind(kind: str) -> Iterator[OnnxCase]:
    """The cases of a kind, in the order of their names."""
    loader = import_module("onnx.backend.test.loader")
    warnings.simplefilter("ignore")
    found = list(loader.load_model_tests(kind=KINDS[kind]))
    for case in sorted(found, key=lambda c: str(c.name)):
        yield _case(kind, case)


def cases_of_modules(names: Sequence[str]) -> list[OnnxCase]:
    """The node cases that some files of the suite make: making all of them takes a while."""
    warnings.simplefilter("ignore")
    package = "onnx.backend.test.case.node"
    for name in names:
        import_module(f"{package}.{name}")
    made = import_module(package)._NodeTestCases  # where its files put what they make
    return sorted((_case("node", case) for case in made), key=lambda c: c.name)


def _case(kind: str, case: Any) -> OnnxCase:
    if case.model is not None:
        sets = [(list(i), list(o)) for i, o in case.data_sets]
        return OnnxCase(kind, case.name, case.model, None, lambda: sets, case.rtol, case.atol)
    folder = Path(case.model_dir) if case.model_dir else None
    if folder is None or not (folder / "model.onnx").exists():
        return _light(kind, case)
    model = onnx_package().load(str(folder / "model.onnx"))
    return OnnxCase(
        kind, case.name, model, folder, lambda: _stored(folder, model), case.rtol, case.atol
    )


def _light(kind: str, case: Any) -> OnnxCase:
    """A network whose file says where it is; its input is what the suite's runner feeds it."""
    file = Path(case.url.removeprefix("onnx/backend/test/data/light/"))
    folder = Path(import_module("onnx.backend.test").__file__ or "").parent / "data" / "light"
    model = onnx_package().load(str(folder / file.name))
    return OnnxCase(
        kind, case.name, model, folder, lambda: _light_sets(folder, file.stem, model), case.rtol,
        case.atol,
    )  # fmt: skip


def _light_sets(folder: Path, stem: str, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """As the suite's runner does it: consecutive numbers over their count."""
    held = {t.name for t in model.graph.initializer}
    inputs = []
    for each in model.graph.input:
        if each.name in held:
            continue
        shape = tuple(d.dim_value for d in each.type.tensor_type.shape.dim)
        size = int(np.prod(shape))
        inputs.append((np.arange(size).reshape(shape) / size).astype(np.float32))
    return [(inputs, [_tensor(folder / f"{stem}_output_0.pb")])]


def _stored(folder: Path, model: Any) -> list[tuple[list[Any], list[Any]]]:
    found = []
    for each in sorted(folder.glob("test_data_set_*")):
        parts = []
        for kind in ("input", "output"):
            files = sorted(each.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            parts.append([_tensor(file) for file in files])
        found.append((parts[0], parts[1]))
    return found


def _tensor(path: Path) -> np.ndarray:
    onnx = onnx_package()
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return np.asarray(onnx.numpy_helper.to_array(tensor))


class Rounding(Noise):
    """What a kernel rounds on its way: every f32 result to f32, halves to the f32 that they are
    computed in."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self, array: np.ndarray, eps: float) -> np.ndarray:
        if eps < DType.F32.eps:
            return array
        with np.errstate(all="ignore"):
            return array.astype(np.float32).astype(np.float64)


def every_input(imported: Imported, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays of all inputs of the graph: `inputs`, and weights between them."""
    given, weights = iter(inputs), iter(imported.weights.values())
    fixed = constant_inputs(imported.graph)
    return [next(weights if k in fixed else given) for k in range(len(imported.graph.inputs))]


def by_reference(imported: Imported, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs by our reference, rounded as kernels round."""
    found = evaluate(imported.graph, every_input(imported, inputs), Rounding())
    types = imported.graph.output_types
    with np.errstate(all="ignore"):
        return [a.astype(t.dtype.numpy) for a, t in zip(found, types, strict=True)]


def by_plan(imported: Imported, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """The graph's outputs by the plan that nothing was measured for, on the CPU."""
    compiled = compile_graph(imported.graph, device="cpu", constants=imported.weights)
    return tuple(compiled(*inputs))


def outcome_of_onnx(case: OnnxCase, run: Runs = by_reference) -> OnnxOutcome:
    """One case, all of its data sets."""
    folded = False

    def made(status: str, told: str = "") -> OnnxOutcome:
        return OnnxOutcome(case.name, case.kind, case.group, status, told[:300], folded)

    try:
        for inputs, wanted in case.sets():
            file = OnnxFile(case.model, case.folder)
            arrays = dict(zip((each.name for each in file.inputs), inputs, strict=True))
            imported = import_for(file, {k: _array(v) for k, v in arrays.items()})
            folded |= _computes_nothing(imported)
            found = run(imported, [_array(arrays[name]) for name in imported.inputs])
            told = _difference(found, wanted, case)
            if told:
                return made(WRONG, told)
    except AutofuseError as error:
        return made(REFUSED, str(error))
    except Exception as error:  # a fault of ours, which the table shows
        return made(BROKEN, f"{type(error).__name__}: {error}")
    return made(PASSED)


def _array(value: Any) -> np.ndarray:
    if isinstance(value, onnx_package().TensorProto):
        return np.asarray(onnx_package().numpy_helper.to_array(value))
    if not isinstance(value, np.ndarray | np.generic):
        raise AutofuseError(f"an input is a {type(value).__name__}, which no graph holds")
    return np.asarray(value)


def _computes_nothing(imported: Imported) -> bool:
    graph = imported.graph
    return not graph.inputs or all(v.node in settled(graph) for v in graph.outputs)


def _difference(found: Sequence[np.ndarray], wanted: Sequence[Any], case: OnnxCase) -> str:
    """What differs; nothing where results are those of the suite."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for k, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        theirs = _array(theirs)
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"output {k} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        first, second = (a.astype(np.float64) if a.dtype.kind not in "fiub" else a
                         for a in (ours, theirs))  # fmt: skip
        unit = ULPS * from_numpy(theirs.dtype).eps
        most = float(np.abs(second[np.isfinite(second)]).max(initial=0)) if unit else 0.0
        rtol, atol = max(case.rtol, unit), max(case.atol, unit * most)
        try:
            np.testing.assert_allclose(first, second, rtol=rtol, atol=atol)
        except AssertionError as error:
            return f"output {k}: {' '.join(str(error).split())}"
    return ""


def declared_gaps() -> dict[str, str]:
    """Why a case is known not to pass, by its name. The list may only shrink: a case of it that
    passes, and one that fails and is not in it, are both faults."""
    found = json.loads(GAPS.read_text(encoding="utf-8"))
    return {name: reason for reason, names in found.items() for name in names}


def faults(outcomes: Sequence[OnnxOutcome], gaps: Mapping[str, str]) -> list[str]:
    """What contradicts the declared gaps, one sentence each."""
    told = []
    for each in outcomes:
        if each.status == PASSED and each.case in gaps:
            told.append(f"{each.case} passes: strike it out of {GAPS.name} ({gaps[each.case]})")
        if each.status == BROKEN or (each.status != PASSED and each.case not in gaps):
            told.append(f"{each.case} is {each.status}: {each.told}")
    return told


def run_kinds(
    kinds: Sequence[str], every: int = 1, only: str = "", run: Runs = by_reference,
    say: Say = lambda _: None,
) -> list[OnnxOutcome]:  # fmt: skip
    """Every `every`-th case of these kinds whose name contains `only`."""
    found: list[OnnxOutcome] = []
    for kind in kinds:
        chosen = [case for case in cases_of_kind(kind) if only in case.name][::every]
        found += [outcome_of_onnx(case, run) for case in chosen]
        say(f"{kind}: {summary([o for o in found if o.kind == kind])}")
    return found


def summary(outcomes: Sequence[OnnxOutcome]) -> str:
    """The counts in one line."""
    count = Counter(o.status for o in outcomes)
    rest = ", ".join(f"{count[s]} {s}" for s in (REFUSED, WRONG, BROKEN))
    folded = sum(o.folded for o in outcomes if o.status == PASSED)
    return f"{count[PASSED]} of {len(outcomes)} pass ({folded} computed on import), {rest}"


def record_of(outcomes: Sequence[OnnxOutcome]) -> dict[str, Any]:
    """What the file holds: counts by kind and operator, and every case that did not pass by
    reason."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    gaps: dict[str, list[str]] = defaultdict(list)
    for each in outcomes:
        groups[each.group][each.status] += 1
        if each.status != PASSED:
            gaps[f"{each.status}: {each.told}"].append(each.case)
    kinds = dict.fromkeys(o.kind for o in outcomes)
    return {
        "onnx": onnx_package().__version__,
        "summary": {kind: summary([o for o in outcomes if o.kind == kind]) for kind in kinds},
        "operators": {name: dict(sorted(groups[name].items())) for name in sorted(groups)},
        "passed": sorted(o.case for o in outcomes if o.status == PASSED),
        "folded": sorted(o.case for o in outcomes if o.status == PASSED and o.folded),
        "gaps": {reason: sorted(names) for reason, names in sorted(gaps.items())},
    }


def write_record(path: Path, outcomes: Sequence[OnnxOutcome]) -> None:
    """The record as JSON."""
    path.write_text(json.dumps(record_of(outcomes), indent=1) + "\n", encoding="utf-8")
