"""The cases that ship inside jax, through the JAX front end and held against jax itself.

A case passes when jax's own result is within what our reference of the graph allows any candidate.
It is refused with a sentence, wrong, or broken (any other exception). Not counted are cases with a
dtype that graphs do not have, those that jax does not implement on a CPU, and those whose results
it leaves open.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops.dtypes import from_numpy
from autofuse.peers.types import BenchError

PASSED, REFUSED, WRONG, BROKEN, FOREIGN = "passed", "refused", "wrong", "broken", "foreign"
SUITE = "jax._src.internal_test_util.test_harnesses"
SEED = 7
# Cases whose results jax leaves open, by a part of their names.
OPEN = {
    "isstable_False": "jax may order equal elements in any way",
    "op_bfloat16": "of equal elements jax may choose any",
    "op_float16": "of equal elements jax may choose any",
    "top_k_sort_inf_nan": "jax does not say where a NaN goes",
}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case; `told` is why, where it did not pass."""

    group: str
    name: str
    status: str
    told: str = ""


def suite() -> Sequence[Any]:
    """Every case, in the order of the suite. Raises BenchError where jax is not here."""
    try:
        return tuple(import_module(SUITE).all_harnesses)
    except ImportError as error:
        raise BenchError(f"the suite is part of jax: {error}") from None


def outcome_of(case: Any) -> Outcome:
    """One case on its own random arguments."""
    group, name = str(case.group_name), str(case.fullname)
    if not case.filter("cpu"):
        return Outcome(group, name, FOREIGN, "jax does not implement it")
    left_open = next((why for part, why in OPEN.items() if part in name), None)
    if left_open is not None:
        return Outcome(group, name, FOREIGN, left_open)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Outcome(group, name, *_status(case))


def determined(fn: Callable[..., Any], group: str) -> Callable[..., Any]:
    """A function of which all results are determined: vectors that may have either sign are turned
    to one, and those that only complete a basis are left out."""

    def turned(*arguments: Any) -> Any:
        found = fn(*arguments)
        if group == "eigh":
            vectors, values = found
            return vectors * _signs(vectors), values
        if group == "svd" and len(found) == 3:
            values, left, right = found
            count = values.shape[-1]
            left, right = left[..., :count], right[..., :count, :]
            signs = _signs(left)
            return values, left * signs, right * signs.swapaxes(-1, -2)
        return found

    return turned


def _signs(vectors: Any) -> Any:
    """1 or -1 for each column, by where it points along a direction that none is at right angles
    to."""
    jnp = import_module("jax").numpy
    along = jnp.einsum("...ij,i->...j", vectors, jnp.cos(jnp.arange(vectors.shape[-2]) + 0.5))
    return jnp.where(along < 0, -1, 1).astype(vectors.dtype)[..., None, :]


def _status(case: Any) -> tuple[str, str]:
    jax = import_module("jax")
    arguments = case.dyn_args_maker(np.random.RandomState(SEED))
    fn = determined(case.dyn_fun, str(case.group_name))
    try:
        wanted = jax.tree.leaves(jax.jit(fn)(*arguments))
    except Exception as error:  # whatever jax raises: the case is no program
        return FOREIGN, f"jax: {type(error).__name__}"
    leaves = jax.tree.leaves(arguments)
    foreign = {str(leaf.dtype) for leaf in (*map(jax.numpy.asarray, leaves), *wanted)
               if not _is_ours(leaf.dtype)}  # fmt: skip
    if foreign:
        return FOREIGN, f"dtype {min(foreign)}"
    try:
        return _compared(fn, arguments, leaves, wanted)
    except AutofuseError as error:
        return REFUSED, str(error).split(" (in ")[0]
    except Exception as error:  # a fault of ours, which the table shows
        return BROKEN, f"{type(error).__name__}: {error}"[:200]


def _is_ours(dtype: Any) -> bool:
    try:
        from_numpy(dtype)
    except (AutofuseError, TypeError):
        return False
    return True


def _compared(
    fn: Callable[..., Any], arguments: Sequence[Any], leaves: Sequence[Any], wanted: Sequence[Any]
) -> tuple[str, str]:
    asarray = import_module("jax").numpy.asarray
    graph = from_jax(fn, *arguments)
    inputs = [np.asarray(asarray(leaf)) for leaf in leaves]
    found = check([np.asarray(each) for each in wanted], reference_of(graph, inputs))
    return (PASSED, "") if found.ok else (WRONG, found.message)


def run(cases: Sequence[Any], say: Say = lambda _: None) -> list[Outcome]:
    """All of them, one after another."""
    found: list[Outcome] = []
    for number, case in enumerate(cases, 1):
        found.append(outcome_of(case))
        if number % 250 == 0 or number == len(cases):
            say(f"{number} of {len(cases)}: {line(found)}")
    return found


def line(outcomes: Sequence[Outcome]) -> str:
    """The counts in one line."""
    count = Counter(o.status for o in outcomes)
    counted = len(outcomes) - count[FOREIGN]
    share = 100 * count[PASSED] / max(1, counted)
    rest = ", ".join(f"{count[s]} {s}" for s in (REFUSED, WRONG, BROKEN))
    return (
        f"{count[PASSED]} of {counted} pass ({share:.1f} %), {rest}; {count[FOREIGN]} not counted"
    )


def record(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the file holds: counts by primitive, and every counted case that did not pass with its
    reason, by reason."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    gaps: dict[str, list[str]] = defaultdict(list)
    for each in outcomes:
        groups[each.group][each.status] += 1
        if each.status not in (PASSED, FOREIGN):
            gaps[f"{each.status}: {each.told}"].append(each.name)
    return {
        "jax": import_module("jax").__version__,
        "summary": line(outcomes),
        "primitives": {name: dict(sorted(groups[name].items())) for name in sorted(groups)},
        "gaps": {reason: sorted(names) for reason, names in sorted(gaps.items())},
    }


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """The record as JSON."""
    path.write_text(json.dumps(record(outcomes), indent=1) + "\n", encoding="utf-8")
