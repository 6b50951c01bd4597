"""autofuse and PyTorch: `torch.compile(model, backend="autofuse")`, and what became of it."""

from __future__ import annotations

from autofuse.interop.torch_backend import backend
from autofuse.interop.torch_explain import explain

__all__ = ["backend", "explain"]
