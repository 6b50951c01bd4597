"""Front ends: every way a graph comes in."""

from __future__ import annotations

from autofuse.frontends.errors import FrontendError, TraceError
from autofuse.frontends.tracer import Spec, spec, trace

__all__ = ["FrontendError", "Spec", "TraceError", "spec", "trace"]
