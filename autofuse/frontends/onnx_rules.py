"""The rules for ONNX operators: by domain, operator and the version since which each holds."""

from __future__ import annotations

from functools import lru_cache

from autofuse.frontends.onnx_attention import ONNX_ATTENTION
from autofuse.frontends.onnx_control import ONNX_CONTROL
from autofuse.frontends.onnx_elementwise import ONNX_ELEMENTWISE
from autofuse.frontends.onnx_indexing import ONNX_INDEXING
from autofuse.frontends.onnx_moves import ONNX_MOVES
from autofuse.frontends.onnx_norms import ONNX_NORMS
from autofuse.frontends.onnx_order import ONNX_ORDER
from autofuse.frontends.onnx_products import ONNX_PRODUCTS
from autofuse.frontends.onnx_quantised import ONNX_QUANTISED
from autofuse.frontends.onnx_recurrent import ONNX_RECURRENT
from autofuse.frontends.onnx_reductions import ONNX_REDUCTIONS
from autofuse.frontends.onnx_resize import ONNX_RESIZE
from autofuse.frontends.onnx_sampling import ONNX_SAMPLING
from autofuse.frontends.onnx_signal import ONNX_SIGNAL
from autofuse.frontends.onnx_training import ONNX_TRAINING
from autofuse.frontends.onnx_types import OnnxRule, OnnxRules
from autofuse.frontends.onnx_windows import ONNX_WINDOWS

# Sequences, strings and optional values are never in a graph: they have no rule.
RULES: OnnxRules = {
    **ONNX_ELEMENTWISE,
    **ONNX_INDEXING,
    **ONNX_MOVES,
    **ONNX_PRODUCTS,
    **ONNX_REDUCTIONS,
    **ONNX_CONTROL,
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
