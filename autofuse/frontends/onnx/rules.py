"""The rules for ONNX operators: by domain, operator and the version since which each holds."""

from __future__ import annotations

from functools import lru_cache

from autofuse.frontends.onnx.attention import ONNX_ATTENTION
from autofuse.frontends.onnx.contributed import ONNX_CONTRIBUTED
from autofuse.frontends.onnx.control import ONNX_CONTROL
from autofuse.frontends.onnx.elementwise import ONNX_ELEMENTWISE
from autofuse.frontends.onnx.indexing import ONNX_INDEXING
from autofuse.frontends.onnx.moves import ONNX_MOVES
from autofuse.frontends.onnx.norms import ONNX_NORMS
from autofuse.frontends.onnx.order import ONNX_ORDER
from autofuse.frontends.onnx.products import ONNX_PRODUCTS
from autofuse.frontends.onnx.quantised import ONNX_QUANTISED
from autofuse.frontends.onnx.recurrent import ONNX_RECURRENT
from autofuse.frontends.onnx.reductions import ONNX_REDUCTIONS
from autofuse.frontends.onnx.resize import ONNX_RESIZE
from autofuse.frontends.onnx.sampling import ONNX_SAMPLING
from autofuse.frontends.onnx.signal import ONNX_SIGNAL
from autofuse.frontends.onnx.training import ONNX_TRAINING
from autofuse.frontends.onnx.types import OnnxRule, OnnxRules
from autofuse.frontends.onnx.windows import ONNX_WINDOWS

# Sequences, strings and optional values are never in a graph: they have no rule.
RULES: OnnxRules = {
    **ONNX_ELEMENTWISE,
    **ONNX_INDEXING,
    **ONNX_MOVES,
    **ONNX_PRODUCTS,
    **ONNX_REDUCTIONS,
    **ONNX_CONTROL,
    **ONNX_CONTRIBUTED,
    **ONNX_NORMS,
    **ONNX_QUANTISED,
    **ONNX_RECURRENT,
    **ONNX_WINDOWS,
    **ONNX_ORDER,
    **ONNX_RESIZE,
    **ONNX_SAMPLING,
    **ONNX_SIGNAL,
    **ONNX_TRAINING,
    **ONNX_ATTENTION,
}


@lru_cache(maxsize=4096)
def rule_of(domain: str, op: str, version: int) -> OnnxRule | None:
    """The rule for an operator whose schema has this since_version; None where there is none (it
    may then have a function body)."""
    held = [since for d, o, since in RULES if (d, o) == (domain, op) and since <= version]
    return RULES[domain, op, max(held)] if held else None
