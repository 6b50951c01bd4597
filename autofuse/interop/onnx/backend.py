"""autofuse as a backend of onnx (`onnx.backend.base`), as its own tests and tools call one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.package import onnx_package
from autofuse.frontends.onnx.read import OnnxFile
from autofuse.interop.onnx.model import OnnxModel


class OnnxPrepared:
    """A model that runs (`onnx.backend.base.BackendRep`)."""

    def __init__(self, model: OnnxModel, options: Mapping[str, Any]) -> None:
        self._model, self._options = model, dict(options)

    def run(self, inputs: Sequence[Any], **_: Any) -> tuple[np.ndarray, ...]:
        """Its outputs, in order, for its inputs, in order."""
        return tuple(self._model.run(list(inputs), **self._options).values())


class OnnxBackend:
    """What `onnx.backend.test.BackendTest` and other tools of onnx ask of a backend."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **_: Any) -> bool:
        """Whether the model is tried at all: every one is, so that what is refused says why."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> OnnxPrepared:
        """`options` are those of `autofuse.compile`. Raises AutofuseError for another device."""
        if not cls.supports_device(device):
            raise AutofuseError(f"device {device} is not supported")
        return OnnxPrepared(OnnxModel(OnnxFile(model)), {"device": "cpu", **options})

    @classmethod
    def run_model(
        cls, model: Any, inputs: Sequence[Any], device: str = "CPU", **options: Any
    ) -> tuple[np.ndarray, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Sequence[Any], device: str = "CPU",
        outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None, **options: Any
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        """One node as a model of its own, in the newest version of the standard."""
        helper = onnx_package("helper")
        types = [helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for array in inputs]
        given = [
            helper.make_tensor_value_info(name, kind, np.asarray(array).shape)
            for name, kind, array in zip(node.input, types, inputs, strict=True)
        ]
        made = [onnx_package().ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "node", given, made)
        return cls.run_model(helper.make_model(graph), inputs, device, **options)
