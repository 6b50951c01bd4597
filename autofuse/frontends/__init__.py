"""Front ends: every way a graph comes in."""

from __future__ import annotations

from autofuse.frontends.errors import TraceError
from autofuse.frontends.tracer import Spec, spec, trace

__all__ = ["Spec", "TraceError", "spec", "trace"]
