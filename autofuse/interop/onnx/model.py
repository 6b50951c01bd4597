"""Models of ONNX as they are loaded: a graph, the weights bound to it, and how it is run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.dims import OpenDims, dims_from
from autofuse.frontends.onnx.read import (
    DecidesShapesError,
    Imported,
    OnnxFile,
    import_onnx,
)
from autofuse.graph.types import Graph
from autofuse.runtime.compiled import CompiledPlan
from autofuse.serving.compiling import compile as compile_graph

# Plans that a model keeps: one for each tuple of sizes and of values that decide shapes.
MOST_PLANS = 8


class OnnxModel:
    """A model with its weights.

    `graph` is what tuning, comparing and showing take, `constants` the weights by the names of its
    constant inputs. `inputs` and `outputs` are the model's own names. `compile` gives a plan of the
    graph with the weights bound. `run` also takes models whose shapes follow from the values of
    some inputs: each tuple of such values has a plan of its own, of which the last eight are kept.
    """

    def __init__(
        self, file: OnnxFile, dims: OpenDims | None = None,
        values: Mapping[str, np.ndarray] | None = None,
    ) -> None:  # fmt: skip
        self._file, self._dims, self._values = file, dims, dict(values or {})
        self.inputs = tuple(each.name for each in file.inputs if each.name not in self._values)
        self.outputs = tuple(each.name for each in file.proto.graph.output)
        self._plans: OrderedDict[Any, tuple[CompiledPlan, Imported]] = OrderedDict()
        self._deciding: tuple[str, ...] = ()
        self._imported: Imported | DecidesShapesError | None = None
        if dims is not None:
            try:
                self._imported = import_onnx(file, dims, self._values)
            except DecidesShapesError as error:
                self._imported, self._deciding = error, error.names

    @property
    def imported(self) -> Imported:
        """The graph and what it reads. Raises DecidesShapesError naming the inputs whose values
        decide shapes, and AutofuseError where the model was loaded without its sizes."""
        if isinstance(self._imported, Exception):
            raise self._imported
        if self._imported is None:
            raise AutofuseError("the model was loaded without sizes: it has a graph when it is run")
        return self._imported

    @property
    def graph(self) -> Graph:
        return self.imported.graph

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        return self.imported.weights

    def compile(self, **options: Any) -> CompiledPlan:
        """As `autofuse.compile` of the graph, with the weights bound; calls take `inputs`."""
        return compile_graph(self.graph, constants=self.constants, **options)

    def run(self, arrays: Mapping[str, Any] | Sequence[Any], **options: Any) -> dict[str, Any]:
        """The outputs by name for `arrays`, by name or in the order of `inputs`. `options` are
        those of `compile`. Raises AutofuseError for arrays that do not fit."""
        given = self._given(arrays)
        plan, imported = self._plan(given, options)
        found = plan(*(given[name] for name in imported.inputs))
        return dict(zip(self.outputs, found, strict=True))

    def _given(self, arrays: Mapping[str, Any] | Sequence[Any]) -> dict[str, np.ndarray]:
        named = arrays if isinstance(arrays, Mapping) else dict(
            zip(self.inputs, arrays, strict=len(arrays) <= len(self.inputs))
        )  # fmt: skip
        missing = [name for name in self.inputs if name not in named]
        other = [name for name in named if name not in self.inputs]
        if missing or other:
            what = f"has no input '{other[0]}'" if other else f"needs an input '{missing[0]}'"
            raise AutofuseError(f"the model {what} (its inputs: {', '.join(self.inputs)})")
        return {name: np.asarray(named[name]) for name in self.inputs}

    def _plan(
        self, given: Mapping[str, np.ndarray], options: Mapping[str, Any]
    ) -> tuple[CompiledPlan, Imported]:
        """The plan for these sizes and values; made, where no call had them before."""
        while True:
            key = self._key(given, options)
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
            try:
                made = self._import(given)
            except DecidesShapesError as error:
                self._deciding += error.names
                continue
            plan = compile_graph(made.graph, constants=made.weights, **options)
            self._plans[key] = plan, made
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
            return self._plans[key]

    def _key(self, given: Mapping[str, np.ndarray], options: Mapping[str, Any]) -> Any:
        values = tuple((name, given[name].tobytes()) for name in self._deciding)
        shapes = tuple(array.shape for array in given.values())
        return values, shapes, tuple(sorted(options.items()))

    def _import(self, given: Mapping[str, np.ndarray]) -> Imported:
        if self._dims is not None and not self._deciding:
            return self.imported
        dims = self._dims
        if dims is None:
            dims = dims_from(self._file.inputs, {k: a.shape for k, a in given.items()})
        values = {name: given[name] for name in self._deciding}
        return import_onnx(self._file, dims, {**self._values, **values})
