"""The rules for aten overloads, by the overload's name: one table for torch.compile and export."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.frontends.torch.elementwise import TORCH_ELEMENTWISE
from autofuse.frontends.torch.foreach import TORCH_FOREACH
from autofuse.frontends.torch.indexing import TORCH_INDEXING
from autofuse.frontends.torch.moves import TORCH_MOVES
from autofuse.frontends.torch.norms import TORCH_NORMS
from autofuse.frontends.torch.products import TORCH_PRODUCTS
from autofuse.frontends.torch.quantised import TORCH_QUANTISED
from autofuse.frontends.torch.reductions import TORCH_REDUCTIONS
from autofuse.frontends.torch.types import TorchRule
from autofuse.frontends.torch.windows import TORCH_WINDOWS

# Random ops and dropout have no rule: they stay torch's, so that draws are those of eager.
RULES: Mapping[str, TorchRule] = {
    **TORCH_ELEMENTWISE,
    **TORCH_FOREACH,
    **TORCH_INDEXING,
    **TORCH_MOVES,
    **TORCH_NORMS,
    **TORCH_PRODUCTS,
    **TORCH_QUANTISED,
    **TORCH_REDUCTIONS,
    **TORCH_WINDOWS,
}
