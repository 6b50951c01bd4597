"""Launch parameters: what the tables say is what spaces offer, printers do and stored texts
mean."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cuda import program as cuda
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.cuda.settings import Settings
from autofuse.kernel.render import render_c, render_cuda
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.parameters import (
    BODY,
    C_LAUNCH,
    CUDA_LAUNCH,
    LAUNCH_TABLES,
    LaunchParameter,
    LaunchSettingError,
    LaunchTable,
    check_launch,
)
from autofuse.plan.parameters_page import launch_parameters_page
from autofuse.plan.program.schedule import Run, kernel_runs, schedule
from autofuse.plan.stored import FORMER, stored_launch
from autofuse.plan.types import (
    Candidate,
    FusionGroup,
    FusionPlan,
    LaunchConfig,
    Setting,
    candidate_from_json,
)
from autofuse.tuning import compile
from autofuse.tuning.search.launches import launch_of
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace, CudaLaunchSpace
from search_spaces.launch import LaunchSpace
from tests.support.parameter_graphs import GRAPHS

PAGE = Path(__file__).parent.parent / "docs" / "launch-parameters.md"
PLAIN: dict[str, dict[str, Setting]] = {
    "c": {},
    "cuda": {"threads": 256, "items": 4, "grid": "one"},
}
# Blocks that are one tile each.
SINGLE_TILES: dict[str, Setting] = {"micro": "64x64", "row_block": 64, "column_block": 64}
# What a parameter shows in besides its own setting.
WITH: dict[str, dict[str, Setting]] = {
    "keep": {"reduce": "block"},
    "rows": {"reduce": "warp"},
    "parts": {"reduce": "split"},
    "stages": {"grid": "stride"},
    "hints": {"vector": 4},
    "fragments": {"mma": "half"},
    "dot": {"micro": "4x6", "pack": False},
    "lines": {"walk": True},
    "tail": {"wave": 7, **SINGLE_TILES},
    "wave": {"tail": 2, **SINGLE_TILES},
    "pingpong": {"mma": "wgmma", **SINGLE_TILES},
    "maps": {"mma": "wgmma", "threads": 256, "micro": "64x64", "row_block": 64, "stages": 2},
}


# Where a parameter is looked for first; what shows nowhere is looked for in all graphs.
SHOWS = {
    "fused": "micro row_block column_block term_block pack pack_left vector_bits across",
    "row": "stage reduce keep stages parts compiler_unroll", "short": "rows",
    "loop": "loop_unroll", "turned": "transpose", "dots": "dot", "long_sums": "split",
    "short_wave": "tail wave",
    "weighted": "prepack", "batch_last": "batch_lanes", "halves": "pairs", "patches": "walk lines",
    "whole_tiles": "pingpong", "grouped": "maps", "attended": "fragments", "ordered": "merge",
    "stencils": "halo",
}  # fmt: skip
SPACES: dict[str, LaunchSpace] = {
    "c": CpuLaunchSpace(pairs=True, amx=True),
    "cuda": CudaLaunchSpace(DEFAULT_TARGET, blaslt=True),
}
# Of a library call there is no text, and what is derived is not said.
ROWS = [
    (dialect, row)
    for dialect, table in LAUNCH_TABLES.items()
    for row in table.values()
    if row.name != "impl" and (dialect, row.name) != ("cuda", "tile")
]


def whole(graph: Graph) -> FusionGroup:
    return group_of(graph, [n for n in range(len(graph.nodes)) if not is_source(graph, n)])


def runs(graph: Graph, launch: LaunchConfig) -> list[Run]:
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,), ((),))
    return list(kernel_runs(schedule(graph, candidate).steps))


@cache
def text(dialect: str, name: str, launch: LaunchConfig) -> str:
    """The texts of all kernels that one group becomes."""
    found = runs(GRAPHS[name], launch)
    if dialect == "c":
        return "\n".join(render_c(cpu.kernel_of(run)) for run in found)
    return "\n".join(render_cuda(cuda.kernel_of(run)) for run in found)


def texts_differ(dialect: str, row: LaunchParameter[int], name: str) -> bool:
    """Whether a kernel has several texts under the choices of one parameter; none is printed after
    the first that differs."""
    defaults = {each.name: each.default for each in LAUNCH_TABLES[dialect].values()}
    base = PLAIN[dialect] | WITH.get(row.name, {})
    choices = (*row.choices, 3) if row.name in ("parts", "threads") and dialect == "c" else None
    more = {"parts": (4,), "wave": (7,)}.get(row.name, ())
    asked = [{**base, row.name: c} for c in choices or (*row.choices, *more)]
    # Defaults go unsaid, so that one text serves the rows of all parameters.
    said = [{n: v for n, v in each.items() if v != defaults[n]} for each in asked]
    first, *others = (LaunchConfig.of(**each) for each in said)
    return any(text(dialect, name, one) != text(dialect, name, first) for one in others)


@pytest.mark.wide(20)
@pytest.mark.parametrize(("dialect", "row"), ROWS, ids=[f"{d}-{r.name}" for d, r in ROWS])
def test_what_changes_the_text_is_said_truly(dialect: str, row: LaunchParameter[int]) -> None:
    likely = sorted(GRAPHS, key=lambda name: row.name not in SHOWS.get(name, "").split())
    changes = any(texts_differ(dialect, row, name) for name in likely)
    assert changes == row.changes_text


def _off(options: tuple[Setting, ...]) -> Setting:
    """Without what may be left out, since one such thing may exclude another."""
    return False if any(option is False for option in options) else options[0]


@pytest.mark.parametrize(("dialect", "table"), LAUNCH_TABLES.items())
def test_a_space_offers_choices_of_the_table_and_leaves_defaults_out(
    dialect: str, table: LaunchTable
) -> None:
    space, seen = SPACES[dialect], dict[str, set[Setting]]()
    for graph in GRAPHS.values():

        def note(name: str, options: tuple[Setting, ...]) -> Setting:
            parameter = name.split(".")[2]
            seen.setdefault(parameter, set()).update(options)
            return options[-1]

        group = whole(graph)
        made = space.choose(graph, group, note, "p")
        space.choose(graph, group, lambda n, o: (note(n, o), o[0])[1], "p")
        space.choose(graph, group, lambda n, o: (note(n, o), _off(o))[1], "p")
        for found in (made, space.default(graph, group)):
            check_launch(table, found)
            for name, value in found.settings:
                assert table[name].spelled or value != table[name].default
    # Loops run by the host have tests of their own (tests/test_rotation.py).
    assert seen.keys() == {name for name, row in table.items() if {*row.kinds} - {BODY}}
    for name, options in seen.items():
        row = table[name]
        assert {type(o) for o in options} == {row.type}
        free = ("threads", "tile", "row_block", "column_block")
        assert name in free or options <= set(row.choices)


def test_the_settings_of_cuda_are_rows_of_its_table() -> None:
    for each in fields(Settings):
        assert each.default == CUDA_LAUNCH[each.name].default


def test_a_name_means_one_thing() -> None:
    for name in C_LAUNCH.keys() & CUDA_LAUNCH.keys():
        c, cu = C_LAUNCH[name], CUDA_LAUNCH[name]
        assert c.type == cu.type
        assert c.doc.split(":")[0] == cu.doc.split(":")[0] or cu.doc.startswith(c.doc)


@pytest.mark.parametrize(
    ("table", "settings", "words"),
    [
        (C_LAUNCH, {"tile": 0}, "tile=0 is no count"),
        (C_LAUNCH, {"tile": True}, "tile=True is no count"),
        (C_LAUNCH, {"stage": 1}, "stage=1 is none of"),
        (C_LAUNCH, {"math": "loose"}, "math='loose' is none of"),
        (C_LAUNCH, {"vector_bits": "512"}, "vector_bits='512' is no count"),
        (CUDA_LAUNCH, {"keep": "l2"}, "keep='l2' is none of"),
        (CUDA_LAUNCH, {"unroll": 2}, "no kernel has a launch parameter 'unroll'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    table: LaunchTable, settings: dict[str, Setting], words: str
) -> None:
    with pytest.raises(LaunchSettingError, match=words) as raised:
        check_launch(table, LaunchConfig.of(**settings))
    assert "\n" not in str(raised.value)


def test_what_other_dialects_know_is_let_pass() -> None:
    check_launch(CUDA_LAUNCH, LaunchConfig.of(stage=True, vector_bits=256))
    check_launch(C_LAUNCH, LaunchConfig.of(grid="one"))


# --- names of former versions ---------------------------------------------------------------------

# A best plan of zoo:cartpole_norng:small as version 0.1 stored it, one of zoo:softmax:small, and
# one for CUDA.
STORED = json.loads((Path(__file__).parent / "data" / "stored_candidates.json").read_text())


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored["name"])
def test_a_stored_best_plan_still_runs(stored: dict[str, str]) -> None:
    name, size = stored["source"].split(":")
    graph = canonical(zoo_graph(name, size))
    candidate = candidate_from_json(stored["candidate"])
    former = {n for names in FORMER[stored["dialect"]].values() for n in names}
    settings = {n for c in candidate.all_launches for n, _ in c.settings}
    assert settings & former and candidate.to_json() != stored["candidate"]
    assert candidate_from_json(candidate.to_json()) == candidate
    device = "cpu" if stored["dialect"] == "c" else "cuda-emulated"
    inputs = random_inputs(graph, 7)
    found = compile(graph, device=device, plan=candidate)(*inputs)
    result = check(tuple(np.asarray(f) for f in found), reference_of(graph, inputs))
    assert result.ok, result.message


def test_former_names_are_read_as_present_ones() -> None:
    assert launch_of('{"threads": 2, "unroll": 4, "vector": 256}') == LaunchConfig.of(
        threads=2, loop_unroll=4, vector_bits=256
    )
    old = {"threads": 64, "items": 4, "vector": 4, "grid": "one", "unroll": 2}
    assert stored_launch(old) == LaunchConfig.of(
        threads=64, items=4, vector=4, grid="one", compiler_unroll=2, loop_unroll=2
    )
    for now in (LaunchConfig.of(threads=2, vector_bits=256), stored_launch(old)):
        assert stored_launch(dict(now.settings)) == now
    for dialect, names in FORMER.items():
        table = LAUNCH_TABLES[dialect]
        assert all(old not in table and set(new) <= table.keys() for old, new in names.items())


def test_the_page_is_what_the_tables_say(request: pytest.FixtureRequest) -> None:
    page = "\n".join([*launch_parameters_page(), ""])
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "run pytest with --update-golden"
