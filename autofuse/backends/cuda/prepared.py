"""Calls of libraries that need something made before: plans of cuFFT and of cuBLASLt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from autofuse.backends.cuda.actions import Action, Fft, Gemm, Matmul
from autofuse.backends.cuda.graphs import HeldCall
from autofuse.backends.cuda.ordering import like
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.plan.program.schedule import Ref

# Plans by what they do.
Plans = Mapping[Matmul | tuple[Transform, DType], Any]


class LibraryDriver(Protocol):
    """What is asked of a driver."""

    def prepare_products(self) -> None: ...

    def matmul_plan(self, product: Matmul) -> Any: ...

    def matmul(self, plan: Any, addresses: tuple[int, ...], workspace: int) -> None: ...

    def transforms(self, kind: Transform, dtype: DType) -> Any: ...

    def fft(self, plan: Any, source: int, target: int) -> None: ...


def library_plans(driver: LibraryDriver, actions: Iterable[Action]) -> Plans:
    """What the calls of a program need; each kind of call once."""
    found: dict[Matmul | tuple[Transform, DType], Any] = {}
    for action in actions:
        match action:
            case Gemm():
                driver.prepare_products()
            case Matmul() if like(action) not in found:
                found[like(action)] = driver.matmul_plan(action)
            case Fft(transform, dtype) if (transform, dtype) not in found:
                found[transform, dtype] = driver.transforms(transform, dtype)
    return found


def library_call(
    driver: LibraryDriver, plans: Plans, single: Matmul | Fft, at: Callable[[Ref], int],
    workspace: Sequence[int],
) -> HeldCall:  # fmt: skip
    """One of them on the arrays at their addresses."""
    if isinstance(single, Matmul):
        given = tuple(map(at, single.refs))
        return HeldCall(driver.matmul, (plans[like(single)], given, workspace[0]))
    plan = plans[single.transform, single.dtype]
    return HeldCall(driver.fft, (plan, at(single.source), at(single.target)))
