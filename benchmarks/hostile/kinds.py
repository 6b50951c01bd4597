"""A kind of input: sound files to begin with, how they are damaged, and who reads them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autofuse import records as r
from autofuse.devices import device_named
from autofuse.frontends.json.file import dumps
from autofuse.graph.canonical import digest, text
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named
from autofuse.zoo import zoo_graph
from benchmarks.hostile import damage
from tuning_db import Store
from tuning_db.transfer import export_lines

Damage = Callable[[random.Random, bytes], bytes]
WORKLOADS = ("softmax", "cartpole_naive", "attention")
DEEP = 20_000


@dataclass(frozen=True)
class Kind:
    """`seeds` are hostile as they are; `lines` are command lines, FILE and DB to be filled in."""

    suffix: str
    sound: Callable[[Path], Sequence[bytes]]
    damages: Sequence[Damage]
    lines: Sequence[Sequence[str]]
    seeds: Callable[[], Sequence[bytes]] = lambda: ()


# Graphs


def _graphs(_folder: Path) -> list[bytes]:
    return [dumps(zoo_graph(name, "small")).encode() for name in WORKLOADS]


def _graph(nodes: str, inputs: str = '{"name":"x","type":"f32[4]"}', out: str = "y") -> bytes:
    return (
        f'{{"autofuse_graph":1,"inputs":[{inputs}],"nodes":[{nodes}],"outputs":["{out}"]}}'.encode()
    )


def _hostile_graphs() -> list[bytes]:
    loop = '{"name":"y","op":"loop","inputs":["x"],"attrs":{"trip":1000000000,"carries":1,"body":'
    body = ('{"graph":{"inputs":[{"name":"i","type":"i32[]"},{"name":"s","type":"f32[4]"}],'
            '"nodes":[{"name":"n","op":"neg","inputs":["s"]}],"outputs":["n"]}}}}')  # fmt: skip
    full = (
        '{"name":"c","op":"constant","attrs":{"value":{"literal":{"type":"f32[]","values":[1]}}}},'
    )
    wide = '{"name":"b","op":"broadcast","inputs":["c"],"attrs":{"shape":[2147483647],"dims":[]}}'
    chain = ",".join(f'{{"name":"n{k}","op":"neg","inputs":["{f"n{k - 1}" if k else "x"}"]}}'
                     for k in range(3000))  # fmt: skip
    doubled = ",".join(f'{{"name":"n{k}","op":"add","inputs":["{p}","{p}"]}}'
                       for k, p in enumerate(["x", *(f"n{k}" for k in range(200))]))  # fmt: skip
    return [
        _graph(loop + body), _graph(full + wide, out="b"), _graph(chain, out="n2999"),
        _graph(doubled, out="n200"), _graph('{"name":"y","op":"neg","inputs":["y"]}'),
        _graph("[" * DEEP), b"[" * DEEP, b'{"a":' * DEEP, b"9" * 100_000, b"", b"\0" * 9999,
    ]  # fmt: skip


# ONNX and PyTorch


def _model(nodes: Sequence[Any], held: dict[str, np.ndarray], shape: Sequence[int]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph(list(nodes), "g", [given], [made], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return bytes(model.SerializeToString())


def _onnx_models(folder: Path) -> list[bytes]:
    """Each read here once: what that imports, no case has to import again."""
    from autofuse.frontends.onnx.read import load_onnx

    found, path = _made_models(), folder / "sound.onnx"
    for each in found:
        path.write_bytes(each)
        load_onnx(str(path), {})
    return found


def _made_models() -> list[bytes]:
    from onnx import TensorProto, helper

    n = helper.make_node
    rng = np.random.default_rng(0)
    w = rng.standard_normal((12, 8)).astype(np.float32)
    k = rng.standard_normal((2, 1, 3, 3)).astype(np.float32)
    ints = {"s": np.asarray([0, -1]), "h": np.asarray([1, 1, 7, 7]), "t": np.asarray(3)}
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [n("Add", ["v", "v"], ["u"]), n("Identity", ["c"], ["d"])], "b",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []),
         info("v", TensorProto.FLOAT, [2, 12])],
        [info("d", TensorProto.BOOL, []), info("u", TensorProto.FLOAT, [2, 12])],
    )  # fmt: skip
    return [
        _model([n("Gemm", ["x", "w"], ["h"]), n("Relu", ["h"], ["r"]), n("Softmax", ["r"], ["y"])],
               {"w": w}, [2, 12]),
        _model([n("Conv", ["x", "k"], ["c"], pads=[1] * 4, strides=[2, 2]),
                n("Resize", ["c", "", "", "h"], ["y"], mode="linear")],
               {"k": k, "h": np.asarray([1, 2, 7, 7])}, [1, 1, 6, 6]),
        _model([n("Shape", ["x"], ["q"]), n("ReduceProd", ["q"], ["p"], keepdims=1),
                n("Reshape", ["x", "p"], ["y"])], {}, [2, 12]),
        _model([n("Loop", ["t", "", "x"], ["y"], body=body)], {"t": ints["t"]}, [2, 12]),
        _model([n("LSTM", ["x", "a", "b"], ["", "y"], hidden_size=2)],
               {"a": np.ones((1, 8, 3), np.float32), "b": np.ones((1, 8, 2), np.float32)},
               [4, 1, 3]),
    ]  # fmt: skip


def _damaged_model(rng: random.Random, raw: bytes) -> bytes:
    import onnx

    message = onnx.ModelProto()
    message.ParseFromString(raw)
    return damage.damaged_message(rng, message)


def _exported(folder: Path) -> list[bytes]:
    import torch

    from autofuse.frontends.torch.export import load_exported

    class Net(torch.nn.Module):  # type: ignore[misc]  # a class of an untyped package
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 4)

        def forward(self, x: Any) -> Any:
            return {"y": self.linear(x).relu(), "z": x.sum()}

    path = folder / "sound.pt2"
    torch.export.save(torch.export.export(Net(), (torch.ones(2, 3),)), path)
    load_exported(str(path))  # what this imports, no case has to import again
    return [path.read_bytes()]


# Databases, exports and bundles


def _stored(folder: Path) -> Path:
    """A database with a plan for each of some workloads, timed here as far as it says."""
    path = folder / "sound.db"
    if path.exists():
        return path
    timing = r.Timing(30, 9.0, 9.5, 10.0, 10.5, 10.1, 0.25, "cold", "noise")
    environment = device_named("cpu").backend.environment()
    with Store.open(path) as store:
        for name in WORKLOADS:
            graph = normal_form(zoo_graph(name, "small"))
            found: Candidate = plan_named(graph, "unfused", device_named("cpu"))
            store.add_workload(digest(graph), text(graph), name, len(graph.nodes))
            one = r.Measurement(
                digest(graph), found.to_json(), found.digest, "random", len(found.plan.groups),
                tuple(f"g{k}" for k in range(len(found.plan.groups))), timing, None, 1e-7,
                r.Cost(0.1, 0.2, 0.3, 0.4), "search", "",
            )  # fmt: skip
            store.add_measurement(None, environment, one)
            kernel = r.KernelMeasurement("g0", "{}", "cold", "", replace(timing), None, 1e-7,
                                         r.Cost(), 2.0, (("bytes", 8.0),))  # fmt: skip
            store.add_kernel(None, environment, kernel)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
    return path


def _databases(folder: Path) -> list[bytes]:
    return [_stored(folder).read_bytes()]


def _exports(folder: Path) -> list[bytes]:
    with Store.open(_stored(folder)) as store:
        return ["\n".join(export_lines(store)).encode()]


def _hostile_exports() -> list[bytes]:
    head = b'{"format":"autofuse-tuning-db","schema":"0004"}\n'
    return [head + b"[" * DEEP, head + b'{"kind":' * DEEP, head + b'{"kind":"workload"}' * 2,
            head + b'{"kind":[]}', b"9" * 100_000, b"", head + b"null", head * 3]  # fmt: skip


def _bundles(folder: Path) -> list[bytes]:
    from autofuse.serving.make import Contents, make_bundle

    contents = Contents("1", "2026-01-01T00:00:00+00:00")
    with Store.open(_stored(folder)) as store:
        make_bundle(contents, store)
    return [contents.finished(None)]


_BYTES = damage.damaged_bytes
KINDS: dict[str, Kind] = {
    "graph": Kind(".json", _graphs, (damage.damaged_json, damage.damaged_json, _BYTES),
                  (("query", "FILE", "--device=cpu", "--db=DB"),), _hostile_graphs),
    "onnx": Kind(".onnx", _onnx_models, (_damaged_model, _damaged_model, _BYTES),
                 (("query", "FILE", "--device=cpu", "--db=DB"),)),
    "pt2": Kind(".pt2", _exported, (damage.damaged_zip, damage.damaged_zip, _BYTES),
                (("query", "FILE", "--device=cpu", "--db=DB"),)),
    "database": Kind(".db", _databases, (_BYTES, damage.damaged_pages),
                     (("db", "info", "--db=FILE"), ("query", "zoo:softmax:small", "--db=FILE"),
                      ("db", "export", "--db=FILE"))),
    "export": Kind(".jsonl", _exports, (damage.damaged_json, damage.damaged_json, _BYTES),
                   (("db", "import", "FILE", "--db=DB"),), _hostile_exports),
    "bundle": Kind(".bundle", _bundles, (_BYTES,),
                   (("bundle", "show", "FILE"), ("bundle", "verify", "FILE"))),
    "line": Kind(".json", lambda folder: [json.dumps({}).encode()], (_BYTES,), ()),
}  # fmt: skip
