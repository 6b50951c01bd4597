"""Who multiplies by narrow weights: ours, PyTorch and onnxruntime, each by its own operator.

PyTorch's operators are asked with bf16 rows, for which it has kernels; with f32 it multiplies one
by one. Its results then have the error of bf16. onnxruntime sums in f32 (accuracy level 0).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.frontends.onnx.package import onnx_package
from autofuse.frontends.onnx.read import OnnxFile
from autofuse.interop.onnx.model import OnnxModel
from autofuse.limits import usable_cores
from autofuse.tuning import tune
from benchmarks.lowbit.cases import Case

Call = Callable[[], np.ndarray]
UNTUNED, TUNED, TORCH, ORT = "untuned", "tuned", "torch", "onnxruntime"
SYSTEMS = (UNTUNED, TUNED, TORCH, ORT)
MICROSOFT = "com.microsoft"


class NotHereError(Exception):
    """Why a system does not do a case."""


def model_of(case: Case) -> Any:
    """The product as an ONNX model of one MatMulNBits, its weights in it."""
    helper, numpy = onnx_package("helper"), onnx_package("numpy_helper")
    held = {"b": case.stored(case.numbers), "s": case.scales.reshape(-1)}
    names = ["a", "b", "s"]
    if case.format.asymmetric:
        held["z"] = case.stored(case.zeros).reshape(-1)
        names.append("z")
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain=MICROSOFT, K=case.terms, N=case.columns,
        bits=case.format.bits, block_size=case.block,
    )  # fmt: skip
    rows = helper.make_tensor_value_info("a", 1, (case.rows, case.terms))
    made = helper.make_tensor_value_info("y", 1, (case.rows, case.columns))
    kept = [numpy.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph([node], "product", [rows], [made], kept)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _ours(case: Case, db: str, budget_s: float) -> Call:
    model = OnnxModel(OnnxFile(model_of(case)), {})
    if budget_s:
        tune(model.graph, device="cpu", db=db, budget_s=budget_s)
    plan = model.compile(device="cpu", db=db)
    return lambda: np.asarray(plan(case.given)[0])


def _torch(case: Case) -> Call:
    """The kernels for a scale a column, and for four bits in groups, whose zero points are in what
    is added."""
    torch = import_module("torch")
    torch.set_num_threads(usable_cores())
    rows = torch.from_numpy(case.given).to(torch.bfloat16)
    if case.format.bits == 8 and not case.format.block:
        bytes_ = (case.numbers.reshape(case.columns, -1) ^ 128).view(np.int8)
        weights = torch.from_numpy(bytes_)
        scales = torch.from_numpy(case.scales[:, 0]).to(torch.bfloat16)
        call = partial(torch._weight_int8pack_mm, rows, weights, scales)
    elif case.format.bits == 4:
        whole = torch.from_numpy(case.numbers.reshape(case.columns, -1).astype(np.int32))
        weights = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
        added = (8.0 - case.zeros) * case.scales
        about = torch.from_numpy(np.stack([case.scales, added], -1).transpose(1, 0, 2).copy())
        ask = torch.ops.aten._weight_int4pack_mm_for_cpu
        call = partial(ask, rows, weights, case.block, about.to(torch.bfloat16))
    else:
        raise NotHereError("it has no operator for this format")
    return lambda: call().float().numpy()


def _onnxruntime(case: Case) -> Call:
    ort = import_module("onnxruntime")
    if not case.format.block:
        raise NotHereError("its blocks have at most 256 terms")
    options = ort.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    data = model_of(case).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"a": case.given})[0]


def system_of(name: str, case: Case, db: str, budget_s: float) -> Call:
    """The call of a system. Raises NotHereError with the reason where it has none."""
    makers: dict[str, Callable[[], Call]] = {
        UNTUNED: lambda: _ours(case, db, 0.0),
        TUNED: lambda: _ours(case, db, budget_s),
        TORCH: lambda: _torch(case),
        ORT: lambda: _onnxruntime(case),
    }
    try:
        return makers[name]()
    except ImportError as error:
        raise NotHereError(f"{error.name} is not installed") from error
