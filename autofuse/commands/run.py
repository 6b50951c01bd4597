"""`autofuse run` computes the outputs of a graph with a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from autofuse.commands.arrays import output_keys, read_arrays, write_arrays
from autofuse.commands.common import (
    DbOption,
    DeviceOption,
    DimOption,
    FormatOption,
    MathOption,
    NoSimplifyOption,
    SeedOption,
    SourceArg,
    TargetOption,
    asked_device,
    output_path,
    reported,
    sized_workload,
    write_whole,
)
from autofuse.commands.output import Format, duration, emit, note, table
from autofuse.graph.keys import input_keys
from autofuse.graph.reference import random_inputs
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.units import bytes_text


@reported
def run(
    source: SourceArg,
    dim: DimOption = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="best, fused or a baseline (default: the best known, else a baseline).",
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Arrays under the names of the graph's inputs."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Where to write the outputs.")
    ] = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    math: MathOption = DEFAULT_MATH,
    no_simplify: NoSimplifyOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Run a graph with a plan on given or random arrays.

    Without --output the outputs are summarised only.
    """
    from autofuse.tuning import compile as compile_graph

    loaded = sized_workload(source, dim)
    name, graph = loaded.name, loaded.graph
    if output is not None:
        output_path(output)
    arrays, origin = _inputs(graph, inputs, seed, loaded.constants)
    kind = asked_device(device, target, math)
    fixed = constant_inputs(graph)
    constants = {key: arrays[k] for k, key in enumerate(input_keys(graph)) if k in fixed}
    compiled = compile_graph(
        graph, device=kind.name, target=target, db=db, plan=plan, constants=constants,
        simplify=not no_simplify, math=math,
    )  # fmt: skip
    for line in compiled.notes:
        note(line)
    given = [array for k, array in enumerate(arrays) if k not in fixed]
    results = dict(zip(output_keys(graph), compiled(*given), strict=True))
    if output is not None:
        write_whole(output, lambda path: write_arrays(path, results))
    data = {
        "graph": name,
        "plan": {
            "origin": compiled.origin,
            "digest": compiled.candidate.digest,
            "checked": str(compiled.trust),
            "check_s": compiled.check_s,
        },
        "inputs": origin,
        "constants": {
            "inputs": list(constants),
            "prepare_s": compiled.prepare_s,
            "prepared_bytes": compiled.prepared_bytes,
        },
        "output": None if output is None else str(output),
        "outputs": {key: _summary(array) for key, array in results.items()},
    }
    emit(form, data, _lines(data))


def _inputs(
    graph: Graph, path: Path | None, seed: int, held: Mapping[str, np.ndarray]
) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """The arrays to run on, and where they come from; `held` are those that the source has."""
    if path is None:
        note(f"no --inputs given: running on random inputs of seed {seed}")
        drawn = zip(input_keys(graph), random_inputs(graph, seed), strict=True)
        arrays = tuple(held.get(key, array) for key, array in drawn)
        return arrays, {"random": True, "seed": seed}
    arrays, ignored = read_arrays(path, graph, held)
    if ignored:
        wanted = ", ".join(input_keys(graph))
        note(f"{path} has arrays that are no input: {', '.join(ignored)} (inputs: {wanted})")
    return arrays, {"random": False, "file": str(path)}


def _summary(array: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.size:
        wide = array.astype(np.float64)
        found |= {"min": wide.min().item(), "max": wide.max().item(), "mean": wide.mean().item()}
    return found


def _lines(data: dict[str, Any]) -> list[str]:
    plan = data["plan"]
    head = [f"{data['graph']} with plan {plan['digest']} ({plan['origin']}), {plan['checked']}"]
    if data["inputs"]["random"]:
        head.append(f"inputs: random, seed {data['inputs']['seed']}")
    fixed = data["constants"]
    if fixed["inputs"]:
        head.append(
            f"constants ({', '.join(fixed['inputs'])}) bound once: "
            f"{duration(1e6 * fixed['prepare_s'])}, {bytes_text(fixed['prepared_bytes'])} kept"
        )
    rows = [
        [
            key,
            f"{row['dtype']}[{','.join(map(str, row['shape']))}]",
            *(f"{row[k]:.6g}" if k in row else "-" for k in ("min", "max", "mean")),
        ]
        for key, row in data["outputs"].items()
    ]
    tail = [] if data["output"] is None else [f"written to {data['output']}"]
    return [*head, *table(["output", "type", ">min", ">max", ">mean"], rows), *tail]
