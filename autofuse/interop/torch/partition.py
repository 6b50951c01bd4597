"""A joint graph of PyTorch cut into forward and backward, by what `torch_saving` decides."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from autofuse.cost.bounds import NOMINAL, Calibration
from autofuse.interop.torch.device import IslandPlace, Places
from autofuse.interop.torch.options import TorchOptions
from autofuse.interop.torch.saving import Worth, kept
from autofuse.order import closure
from autofuse.tuning.plans import known_peaks

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node
else:
    GraphModule = Node = Any

# What an element of a function that is no polynomial counts for (see `Calibration`).
_DEAR = 15
_DEAR_OPS = ("exp", "log", "sin", "cos", "tan", "erf", "pow", "sigmoid", "gelu", "silu", "softmax")
_RANDOM = ("rand", "bernoulli", "dropout", "normal", "multinomial")


def partition(options: TorchOptions) -> Callable[..., tuple[GraphModule, GraphModule]]:
    """The function that AOTAutograd cuts joint graphs with: (module, inputs, num_fwd_outputs) to
    forward and backward. Graphs with symbolic sizes are left to PyTorch's minimum cut."""

    def cut(gm: GraphModule, inputs: Any, **facts: Any) -> tuple[GraphModule, GraphModule]:
        from torch._functorch import partitioners

        if any(_is_symbolic(node) for node in gm.graph.nodes):
            found = partitioners.min_cut_rematerialization_partition(gm, inputs, **facts)
        else:
            count, peaks = facts["num_fwd_outputs"], _peaks(gm, options)
            saved = saved_values(gm, count, options.max_memory, _overwritten(gm), peaks)
            found = partitioners._extract_fwd_bwd_modules(gm, saved, [], num_fwd_outputs=count)
        forward, backward = found
        return forward, backward

    return cut


def _peaks(gm: GraphModule, options: TorchOptions) -> Calibration:
    """What is known of the device that most of a graph's nodes are on."""
    places = Places(options.device)
    found = Counter(p for p in map(places.of_node, gm.graph.nodes) if isinstance(p, IslandPlace))
    if not found:
        return NOMINAL
    ((place, _),) = found.most_common(1)
    with place.on():
        environment = place.device.kind.backend.environment()
    return known_peaks(environment, options.db) or NOMINAL


def saved_values(
    gm: GraphModule, outputs: int, max_memory: int | None, lost: Collection[Node] = (),
    peaks: Calibration = NOMINAL,
) -> list[Node]:  # fmt: skip
    """The nodes of a joint graph that its forward graph keeps for its backward graph; the first
    `outputs` results are those of the forward graph, and inputs that are `lost` have other values
    by the time that the backward graph runs. Times are by `peaks`."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    results = _flat(output.args[0])
    gradients = [n for n in results[outputs:] if n is not None]
    forward = _needed([n for n in results[:outputs] if n is not None])
    before = _before_tangents(gm)
    read = {i for n in _needed(gradients) for i in n.all_input_nodes if n not in before}
    read |= set(gradients)
    values = [n for n in gm.graph.nodes if n in before and n in _needed(read & before)]
    numbers = {node: number for number, node in enumerate(values)}
    # What a forward graph leaves in the cache its backward graph may find there.
    warm = sum(map(_nbytes, values)) <= peaks.cache_bytes
    worths = [
        replace(
            _worth(node, numbers, node in read, node in lost, peaks, warm),
            is_forward=node in forward,
        )
        for node in values
    ]
    return [values[i] for i in kept(worths, max_memory)]


def _flat(results: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return list(tree_leaves(results, is_leaf=lambda leaf: leaf is None))


def _before_tangents(gm: GraphModule) -> set[Node]:
    """Nodes that depend on no gradient."""
    found: set[Node] = set()
    for node in gm.graph.nodes:
        is_tangent = node.op == "placeholder" and "tangents" in str(node.target)
        if not is_tangent and node.op != "output" and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found


def _needed(roots: Any) -> set[Node]:
    return closure(roots, lambda node: node.all_input_nodes)


def _overwritten(gm: GraphModule) -> set[Node]:
    """Inputs that the program writes to: AOTAutograd describes each input, and each result that is
    to be written into one."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    written = [getattr(told, "mutated_input", None) for told in output.meta["desc"]]
    inputs = (node for node in gm.graph.nodes if node.op == "placeholder")
    return {node for node in inputs if node.meta["desc"] in written}


def _worth(
    node: Node, numbers: dict[Node, int], is_read: bool, is_lost: bool, peaks: Calibration,
    warm: bool,
) -> Worth:  # fmt: skip
    operands = tuple(numbers[n] for n in node.all_input_nodes)
    if node.op in ("placeholder", "get_attr"):
        # It is there in any case.
        return Worth(0, None if is_lost else 0.0, None, (), is_read)
    if not hasattr(node.meta.get("val"), "numel"):
        return Worth(0, None, _again_us(node, peaks), operands, is_read)
    nbytes = _nbytes(node)
    # Written by one graph and read by the other.
    keep_us = peaks.move_us(2 * nbytes, warm)
    return Worth(nbytes, keep_us, _again_us(node, peaks), operands, is_read)


def _nbytes(node: Node) -> int:
    """Bytes of the memory that a result of these strides lies in, gaps among them."""
    from torch._prims_common import compute_required_storage_length

    value = node.meta.get("val")
    if not hasattr(value, "numel"):
        return 0
    length: int = compute_required_storage_length(value.shape, value.stride(), 0)
    return length * int(value.element_size())


def _counted(counter: Any, node: Node) -> float:
    values = [_value(a) for a in node.args]
    kwargs = {k: _value(a) for k, a in node.kwargs.items()}
    return float(counter(*values, **kwargs, out_val=node.meta["val"]))


def _most_elements(node: Node) -> float:
    """Of what it reads and makes."""
    tensors = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    return float(max((prod(t.shape) for t in tensors if hasattr(t, "shape")), default=0))


def _again_us(node: Node, peaks: Calibration) -> float | None:
    """Microseconds to compute a node again in a kernel that has its operands; None for random
    numbers, which would be others."""
    from torch.utils.flop_counter import flop_registry

    name = str(node.target)
    if any(word in name for word in _RANDOM):
        return None
    if node.target is operator.getitem or getattr(node.target, "is_view", False):
        return 0.0
    counter = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if counter is not None:
        # It is a kernel more, where others are part of one.
        count = _counted(counter, node)
        return peaks.launch_us + count / (1e3 * (peaks.library or peaks.contraction))
    most = _most_elements(node)
    is_dear = any(word in name for word in _DEAR_OPS)
    return _DEAR * most / (1e3 * peaks.special) if is_dear else most / (1e3 * peaks.cheap)


def _value(argument: Any) -> Any:
    """An argument with the tensors that nodes stand for."""
    from torch.fx.node import map_arg

    return map_arg(argument, lambda node: node.meta["val"])


def _is_symbolic(node: Node) -> bool:
    import torch

    value = node.meta.get("val")
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    sizes: Sequence[Any] = value.shape if isinstance(value, torch.Tensor) else ()
    return isinstance(value, kinds) or any(isinstance(n, kinds) for n in sizes)
