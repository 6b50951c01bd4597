"""Damaged graph files: a graph or one sentence, never a traceback, a hang or a huge allocation.

Every case is made from the seed and its number. AUTOFUSE_FUZZ_SEED and AUTOFUSE_FUZZ_CASES choose
others and more of them; a failure names both.
"""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from autofuse.errors import AutofuseError
from autofuse.frontends.json.file import dumps, load
from autofuse.graph.verify import verify
from autofuse.ops.spec import all_specs
from autofuse.zoo import zoo_graph
from benchmarks.hostile import damage
from benchmarks.hostile.damage import damaged_bytes, damaged_tree
from tests.support.damage import SEED, bounded
from tests.support.graph_files import GOOD, full_graph

CASES = int(os.environ.get("AUTOFUSE_FUZZ_CASES", "1500"))
# Cases in one test, so that a failure is found again quickly.
CHUNK = 250

OPS = [spec.name for spec in all_specs()]
TEXTS = [*damage.TEXTS, "y:1", "y:99999", "a b", "f32[2]", "i32[]", "bool[3,4]", "f99[1]",
         "f32[" + "1," * 500 + "1]"]  # fmt: skip
OBJECTS: list[Any] = [
    None, True, False, {}, [], [[]], {"graph": {}}, {"literal": {}}, {"float": "NaN"},
    {"graph": {"inputs": [], "nodes": [], "outputs": []}}, {"literal": {"type": "f32[2]"}},
    {"literal": {"type": "f32[2]", "values": [1, "NaN"]}}, [2**40, 2**40], [0] * 3000,
    {"literal": {"type": "u8[4]", "base64": "AAECAw=="}}, {"name": "x", "op": "input"},
]  # fmt: skip

DEEP = [f"@deep {kind} {depth}" for kind in ("list", "graph") for depth in (5, 300, 9000)]


def documents() -> list[Any]:
    graphs = [full_graph(), zoo_graph("cartpole_naive", "small"), zoo_graph("attention", "small")]
    return [GOOD, *(json.loads(dumps(graph)) for graph in graphs)]


def junk(rng: random.Random) -> Any:
    pools = (damage.NUMBERS, TEXTS, OBJECTS, OPS, DEEP, [rng.randrange(-3, 9)])
    return copy.deepcopy(rng.choice(rng.choice(pools)))


def deepened(text: str) -> str:
    """The marks in DEEP as what they stand for, which is too deep for json.dumps."""
    for mark in DEEP:
        if mark in text:
            _, opening, depth = mark.split(" ")
            start, end = {"list": ("[", "]"), "graph": ('{"graph": ', "}")}[opening]
            text = text.replace(f'"{mark}"', start * int(depth) + "0" + end * int(depth))
    return text


def case(number: int, trees: list[Any]) -> bytes:
    rng = random.Random(f"{SEED}:{number}")
    tree = rng.choice(trees)
    if rng.random() < 0.7:
        return deepened(json.dumps(damaged_tree(rng, tree, junk))).encode()
    return damaged_bytes(rng, json.dumps(tree).encode())


def outcome(path: Path) -> str:
    """What became of a file: "graph" or "refused"; anything else is an error."""
    try:
        graph = load(path)
    except AutofuseError as error:
        text = str(error)
        assert text.startswith(str(path)) and "\n" not in text, text
        assert len(text) < 600 + len(str(path)), text
        text.encode("utf-8")
        return "refused"
    again = path.with_suffix(".again")
    again.write_text(dumps(verify(graph)), encoding="utf-8")
    assert load(again) == graph
    return "graph"


@pytest.mark.parametrize("chunk", range(-(-CASES // CHUNK)))
def test_damaged_files_are_graphs_or_sentences(chunk: int, tmp_path: Path) -> None:
    trees, found = documents(), set()
    for number in range(chunk * CHUNK, min((chunk + 1) * CHUNK, CASES)):
        path = tmp_path / "g.json"
        path.write_bytes(case(number, trees))
        try:
            with bounded():
                found.add(outcome(path))
        except Exception as error:  # any other error is what is looked for
            error.add_note(f"AUTOFUSE_FUZZ_SEED={SEED}, case {number}: {path}")
            raise
    assert found == {"graph", "refused"}
