"""Graphs from PyTorch programs, through torch.export."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.leaves import label_of, range_of, unique_names
from autofuse.frontends.torch.archive import harmless_copy
from autofuse.frontends.torch.fx import FxResult, decompositions, tensor_type, write_nodes
from autofuse.frontends.torch.types import torch_module
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

# Tensors that a program makes itself become literals up to so many elements, else inputs.
MOST_LITERAL = 1024
# Characters of what torch says of a file.
_MOST_SAID = 400
_HELD = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")


def from_torch(program: Any, *args: Any, constant_parameters: bool = False, **kwargs: Any) -> Graph:
    """The graph of a module, a function or a torch.export.ExportedProgram.

    What is no exported program yet is exported with `args` and `kwargs`, without gradients and in
    the mode that a module is in. Parameters and buffers are inputs, named as in the module (dots
    become underscores), before the arguments, which have their own names; with
    `constant_parameters` they are constants, bound once (`compile`). Small tensors that the program
    itself makes are literals. Results are named after their path, `out` or `out_key_0`; after them
    comes `new_` and the name for every buffer or argument that the program changes. The values of
    arguments only set the range that random test inputs are drawn from.
    Tensors may be on any device, and be without memory (device "meta", fake ones): nothing is run.
    Raises FrontendError naming the node that cannot be expressed, and AutofuseError when torch is
    not installed or cannot export the program.
    """
    with warnings.catch_warnings():
        # torch copies tree specs in a way that it warns of itself.
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec", FutureWarning)
        exported = _exported(program, args, kwargs)
        exported = exported.run_decompositions(decompositions())
    w = GraphWriter()
    env = _inputs(w, exported, constant_parameters)
    nodes = list(exported.graph.nodes)
    inner = next((n for n in nodes if n.op == "get_attr"), None)
    if inner is not None:
        raise FrontendError(f"{inner.target}: control flow of torch is not supported")
    write_nodes(w, [n for n in nodes if n.op == "call_function"], env, "program")
    outputs = _outputs(exported, env)
    if not outputs:
        raise FrontendError("the program returns no tensor")
    return w.build([v for _, v in outputs], unique_names([name for name, _ in outputs]))


def _exported(program: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    torch = torch_module()
    if isinstance(program, torch.export.ExportedProgram):
        if args or kwargs:
            raise AutofuseError("an exported program has its arguments already")
        return program
    module = program if isinstance(program, torch.nn.Module) else _as_module(torch, program)
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(args), kwargs)
    except AutofuseError:
        raise
    except Exception as error:  # torch's exporter raises whatever the program and its parts do
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise AutofuseError(f"torch cannot export the program: {said[0]}") from error


def _as_module(torch: Any, function: Callable[..., Any]) -> Any:
    """A module that calls `function`, with its parameters' names."""
    if not callable(function):
        raise AutofuseError(f"{type(function).__name__} is no module and no function")
    return type("Program", (torch.nn.Module,), {"forward": staticmethod(function)})()


def _inputs(w: GraphWriter, exported: Any, constant: bool) -> dict[Any, FxResult]:
    """The values of placeholders."""
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    names = unique_names([_name(n, s) for n, s in zip(nodes, specs, strict=True)])
    examples = _examples(exported)
    env: dict[Any, FxResult] = {}
    for node, spec, name in zip(nodes, specs, names, strict=True):
        kind, target = spec.kind.name, spec.target
        if not hasattr(node.meta.get("val"), "layout"):
            continue  # a number or None, which the program has been made for
        type_ = _input_type(name, node)
        if kind not in _HELD:
            low, high = range_of(next(examples, None), type_.dtype)
            env[node] = w.input(name, type_.shape, type_.dtype, low=low, high=high)
            continue
        values = _held_values(exported, kind, target)
        if kind == "CONSTANT_TENSOR" and type_.size <= MOST_LITERAL and values is not None:
            env[node] = w.constant(values, type_.dtype)
        else:
            env[node] = _held(w, name, type_, values, constant)
    return env


def _held(
    w: GraphWriter, name: str, type_: TensorType, values: np.ndarray | None, constant: bool
) -> Value:
    """An input for what the module holds. Only places say more of their values than their type:
    they keep their range, as they do not change by training."""
    low: float | None = None
    high: float | None = None
    if values is not None and type_.dtype.is_int:
        low, high = range_of(values, type_.dtype)
    return w.input(name, type_.shape, type_.dtype, low=low, high=high, constant=constant)


def _name(node: Any, spec: Any) -> str:
    return _plain(node.name if spec.target is None else spec.target)


def _plain(name: str) -> str:
    """A name in letters that graph files allow."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _examples(exported: Any) -> Any:
    """The tensors among the arguments that a program was exported with, as arrays, None for those
    without memory."""
    leaves = torch_module().utils._pytree.tree_leaves(exported.example_inputs or ())
    return iter([_array(leaf) for leaf in leaves if hasattr(leaf, "layout")])


def _array(tensor: Any) -> np.ndarray | None:
    """The values of a tensor; halves, which NumPy may not know, as float32. None for a tensor
    without memory (device "meta", or a fake one of any device)."""
    fake = torch_module()._subclasses.FakeTensor
    if tensor.device.type == "meta" or isinstance(tensor, fake):
        return None
    tensor = tensor.detach().cpu()
    narrow = tensor.is_floating_point() and tensor.element_size() < DType.F32.itemsize
    return np.asarray((tensor.float() if narrow else tensor).numpy())


def _input_type(name: str, node: Any) -> TensorType:
    try:
        return tensor_type(node.meta["val"])
    except FrontendError as error:
        raise FrontendError(f"input '{name}': {error}") from None


def _held_values(exported: Any, kind: str, target: str) -> np.ndarray | None:
    held = exported.state_dict.get(target, exported.constants.get(target))
    # Weights may be gigabytes, and their values say nothing.
    return None if held is None or kind == "PARAMETER" else _array(held)


def _outputs(exported: Any, env: dict[Any, FxResult]) -> list[tuple[str, Value]]:
    """Results of the program first, then what it changes."""
    pytree = torch_module().utils._pytree
    nodes = exported.graph.output_node().args[0]
    pairs = list(zip(exported.graph_signature.output_specs, nodes, strict=True))
    results = [node for spec, node in pairs if spec.kind.name == "USER_OUTPUT"]
    tree = pytree.tree_unflatten(list(range(len(results))), exported.call_spec.out_spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    named = [(label_of("out", path), node) for path, node in zip(paths, results, strict=True)]
    for spec, node in pairs:
        if spec.kind.name.endswith("MUTATION"):
            named.append((f"new_{_plain(spec.target)}", node))
    found = []
    for name, node in named:
        if _is_tensor(name, node):
            value = env[node]
            assert isinstance(value, Value)
            found.append((name, value))
    return found


def _is_tensor(name: str, result: Any) -> bool:
    """Whether a result is a tensor, and not None."""
    if not hasattr(result, "meta") and result is not None:
        raise FrontendError(f"result '{name}' is no tensor")
    return result is not None


# What a command line calls a source


def load_exported(path: str) -> Graph:
    """The graph of a program that torch.export.save wrote. No code of the file is run: what is more
    than operators and weights is refused."""
    torch = torch_module()
    try:
        exported = torch.export.load(harmless_copy(path))
    except Exception as error:  # torch raises many kinds for a file that it cannot read
        said = " ".join(str(error).split()) or type(error).__name__
        raise AutofuseError(f"{path} is no exported program: {said[:_MOST_SAID]}") from error
    try:
        return from_torch(exported)
    except AutofuseError:
        raise
    except Exception as error:  # decompositions meet a graph that contradicts itself
        said = " ".join(str(error).split()) or type(error).__name__
        raise AutofuseError(f"{path} contradicts itself: {said[:_MOST_SAID]}") from error


def load_factory(text: str) -> Graph:
    """`file.py:name`: the graph of the module (or function) and arguments that `name()` of that
    file gives as (module, args)."""
    file, _, name = text.rpartition(":")
    factory = getattr(_loaded(Path(file)), name, None)
    if not callable(factory):
        raise AutofuseError(f"{file} has no function {name!r}")
    try:
        made = factory()
    except Exception as error:  # whatever the user's function raises
        said = f"{type(error).__name__}: {error}"
        raise AutofuseError(f"{name}() of {file} failed: {said}") from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], tuple):
        raise AutofuseError(f"{name}() of {file} must return (module, tuple of arguments)")
    return from_torch(made[0], *made[1])


def _loaded(path: Path) -> Any:
    """The module that a file holds, which may import its neighbours."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AutofuseError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        said = f"{type(error).__name__}: {error}"
        raise AutofuseError(f"{path} cannot be imported: {said}") from error
    finally:
        sys.path.pop(0)
    return module
