"""Who may compute a product on CUDA besides our kernels: cuBLAS, and cuBLASLt with what follows."""

from __future__ import annotations

from typing import Any

from autofuse.plan.parameters import (
    ALGORITHM,
    BLAS,
    BLASLT,
    CUDA_IMPL,
    CUDA_MATH,
    GEMM,
    GENERATED,
    IMPL,
    LaunchParameter,
)
from autofuse.plan.types import Setting
from search_spaces.launch import Chosen, Offer
from search_spaces.tile_facts import TILE_PARAMETERS


def by_libraries(offer: Offer, kind: str, blaslt: bool) -> Offer:
    """A lone product is done by any library, one with what follows it by cuBLASLt if that could;
    a library chooses all but what may be rounded, and cuBLASLt not even its algorithm."""
    lone = (BLAS, *(BLASLT,) * blaslt, GENERATED)
    choices = lone if kind == GEMM else (GENERATED, BLASLT) if blaslt else ()

    def offered(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
        if row is CUDA_IMPL:
            return choices
        if row is ALGORITHM:
            return ALGORITHM.choices if made.get(IMPL.name) == BLASLT else ()
        if made.get(IMPL.name) == BLASLT:
            return offer(row, {**made, IMPL.name: BLAS}) if row is CUDA_MATH else ()
        return offer(row, made)

    return offered


def untiled(offer: Offer) -> Offer:
    """A product in another schedule than tiles, such as one of integers."""
    return lambda row, made: () if row.name in TILE_PARAMETERS else offer(row, made)
