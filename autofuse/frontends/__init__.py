"""Front ends: every way a graph comes in."""

from __future__ import annotations

from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.frontends.errors import FrontendError, TraceError

__all__ = ["FrontendError", "Spec", "TraceError", "spec", "trace"]
