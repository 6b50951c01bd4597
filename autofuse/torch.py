"""autofuse and PyTorch: `torch.compile(model, backend="autofuse")`, and what became of it."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec

from autofuse.interop.torch.backend import backend
from autofuse.interop.torch.explain import explain

__all__ = ["backend", "explain"]

_GROUP, _NAME = "torch_dynamo_backends", "autofuse"


def _named() -> None:
    """Gives the backend its name where no installed package does, as in a checkout on a path.
    PyTorch itself registers what an entry point names, and permits no second time."""
    installed = any(entry.name == _NAME for entry in entry_points(group=_GROUP))
    if installed or find_spec("torch") is None:
        return
    from torch._dynamo.backends import registry

    if _NAME not in registry._COMPILER_FNS:
        registry.register_backend(backend, name=_NAME)


_named()
