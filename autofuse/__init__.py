"""autofuse searches for the fastest fusion plan of a dataflow graph.

Names load when they are first used: `import autofuse` costs no more than Python itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autofuse.version import __version__

if TYPE_CHECKING:
    from autofuse import torch as torch
    from autofuse.errors import AutofuseError as AutofuseError
    from autofuse.frontends import array_api as xp
    from autofuse.frontends.array_api.tracer import spec, trace
    from autofuse.frontends.jax.jaxpr import from_jax
    from autofuse.frontends.json.file import save
    from autofuse.frontends.onnx.export import save_onnx
    from autofuse.frontends.torch.export import from_torch
    from autofuse.graph.types import Graph as Graph
    from autofuse.interop.jax.jit import jax_jit
    from autofuse.interop.jax.patch import jax_patch
    from autofuse.interop.loading import load
    from autofuse.plan.networks import plan_to_networkx, to_networkx
    from autofuse.serving.bundle import open_bundle
    from autofuse.serving.compiling import compile
    from autofuse.tuning import TuneOptions as TuneOptions
    from autofuse.tuning import best_plan, compare, tune

__all__ = [
    "AutofuseError",
    "Graph",
    "TuneOptions",
    "__version__",
    "best_plan",
    "compare",
    "compile",
    "from_jax",
    "from_torch",
    "jax_jit",
    "jax_patch",
    "load",
    "open_bundle",
    "plan_to_networkx",
    "save",
    "save_onnx",
    "spec",
    "to_networkx",
    "torch",
    "trace",
    "tune",
    "xp",
]

# Public name: the module it comes from, and its name there (None: the module itself).
_SOURCES: dict[str, tuple[str, str | None]] = {
    "AutofuseError": ("autofuse.errors", "AutofuseError"),
    "Graph": ("autofuse.graph.types", "Graph"),
    "TuneOptions": ("autofuse.tuning", "TuneOptions"),
    "best_plan": ("autofuse.tuning", "best_plan"),
    "compare": ("autofuse.tuning", "compare"),
    "compile": ("autofuse.serving.compiling", "compile"),
    "from_jax": ("autofuse.frontends.jax.jaxpr", "from_jax"),
    "from_torch": ("autofuse.frontends.torch.export", "from_torch"),
    "jax_jit": ("autofuse.interop.jax.jit", "jax_jit"),
    "jax_patch": ("autofuse.interop.jax.patch", "jax_patch"),
    "load": ("autofuse.interop.loading", "load"),
    "open_bundle": ("autofuse.serving.bundle", "open_bundle"),
    "plan_to_networkx": ("autofuse.plan.networks", "plan_to_networkx"),
    "save": ("autofuse.frontends.json.file", "save"),
    "save_onnx": ("autofuse.frontends.onnx.export", "save_onnx"),
    "spec": ("autofuse.frontends.array_api.tracer", "spec"),
    "to_networkx": ("autofuse.plan.networks", "to_networkx"),
    "torch": ("autofuse.torch", None),
    "trace": ("autofuse.frontends.array_api.tracer", "trace"),
    "tune": ("autofuse.tuning", "tune"),
    "xp": ("autofuse.frontends.array_api", None),
}


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module 'autofuse' has no attribute {name!r}")
    module, attribute = _SOURCES[name]
    loaded = import_module(module)
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
