"""`explain`: what of a model becomes plans, and what PyTorch runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any

from autofuse.frontends.torch.types import torch_module
from autofuse.interop.torch.backend import backend, only_planned, reports
from autofuse.interop.torch.report import GraphReport, ModelExplanation

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

_BREAKS = "graph_break"


def explain(
    model: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> ModelExplanation:
    """Compile a model (module or function) for these arguments and say what became of it.

    It is run once, and where gradients can be taken of its results, they are, and given to nobody.
    Where tensors have no memory (device "meta", or fake tensors of any device) plans are chosen and
    nothing is built: their device need not be here. `options` are those of the backend. Raises
    AutofuseError for wrong ones, and without PyTorch."""
    torch = torch_module()
    from torch._guards import detect_fake_mode

    counters = torch._dynamo.utils.counters

    before = Counter(counters[_BREAKS])
    found: list[GraphReport] = []
    tensors = _tensors(model, args, kwargs)
    fake = detect_fake_mode(tensors) if tensors else None
    imagined = fake is not None or any(t.device.type == "meta" for t in tensors)
    tokens = reports.set(found), only_planned.set(imagined)
    try:
        # Apart from what PyTorch has compiled, which counts towards its limit, where it knows how.
        known = "isolate_recompiles" in signature(torch.compile).parameters
        apart: dict[str, Any] = {"isolate_recompiles": True} if known else {}
        compiled = torch.compile(model, backend=_unmet(options), **apart)
        with fake or nullcontext():
            _backward(compiled(*args, **kwargs), model, (*args, *kwargs.values()))
    finally:
        reports.reset(tokens[0])
        only_planned.reset(tokens[1])
    breaks = Counter(counters[_BREAKS]) - before
    return ModelExplanation(tuple(found), tuple(str(reason) for reason in breaks))


def _unmet(options: Mapping[str, Any] | None) -> Callable[..., Any]:
    """Our backend as another one: PyTorch does not call one again whose code it still has, and
    there would be nothing to tell."""
    return lambda gm, inputs: backend(gm, inputs, options=options)


def _tensors(model: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """What a model holds and is given."""
    import torch
    from torch.utils._pytree import tree_leaves

    held = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    return [t for t in (*tree_leaves((args, kwargs)), *held) if isinstance(t, torch.Tensor)]


def _backward(results: Any, model: Any, arguments: tuple[Any, ...]) -> None:
    """Take gradients of all results, if any can be taken."""
    import torch
    from torch.utils._pytree import tree_leaves

    def wants(leaf: Any) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.requires_grad

    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    sources: list[Tensor] = [t for t in (*tree_leaves(arguments), *parameters) if wants(t)]
    targets: list[Tensor] = [t for t in tree_leaves(results) if wants(t)]
    if sources and targets:
        torch.autograd.grad([t.sum() for t in targets], sources, allow_unused=True)
