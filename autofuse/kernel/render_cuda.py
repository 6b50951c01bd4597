"""render_cuda: a kernel as CUDA text."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.dialects import CUDA
from autofuse.kernel.ir import Kernel, Local, Loop, Stmt, Store, statements
from autofuse.kernel.printer import Printer, signature


def render_cuda(kernel: Kernel) -> str:
    """One CUDA kernel; block size and grid size are free, block size a multiple of 32."""
    return "\n".join([signature(kernel, CUDA), "{", *_CudaPrinter(kernel).lines(), "}", ""])


class _CudaPrinter(Printer):
    """Grid loops stride over blocks, lane loops over the threads of a block."""

    dialect = CUDA

    def guard(self, buffer: str, in_lane: bool) -> str:
        return "" if in_lane else "if (threadIdx.x == 0) "

    def local(self, type_name: str, name: str, size: int) -> str:
        return f"__shared__ {type_name} {name}[{size}];"

    def loop(self, loop: Loop, depth: int, in_lane: bool) -> Iterator[str]:
        pad = "  " * depth
        if loop.kind == "grid":
            yield f"{pad}{self.head(loop, 'blockIdx.x', 'gridDim.x')}"
            yield from self.block(loop.body, depth + 1, in_lane)
            if _has_local(loop):
                yield f"{pad}  __syncthreads();"
            yield f"{pad}}}"
            return
        if loop.kind == "lane":
            yield from self._lane(loop, depth)
            return
        yield f"{pad}{self.head(loop)}"
        yield from self.block(loop.body, depth + 1, in_lane)
        yield f"{pad}}}"
        # One thread has stored what all are going to read.
        if not in_lane and any(self._is_shared(s) for s in loop.body):
            yield f"{pad}__syncthreads();"

    def _is_shared(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Store) and stmt.buffer not in self.outs

    def _lane(self, loop: Loop, depth: int) -> Iterator[str]:
        pad = "  " * depth
        for fold in loop.folds:
            # Lanes start from the identity and the running value joins once, afterwards.
            name = fold.target.name
            kind = self.dialect.types[fold.target.dtype]
            yield f"{pad}const {kind} {name}_before = {name};"
            yield f"{pad}{name} = af_identity_{fold.operator}_{fold.target.dtype}();"
        yield f"{pad}{self.head(loop, 'threadIdx.x', 'blockDim.x')}"
        yield from self.block(loop.body, depth + 1, True)
        yield f"{pad}}}"
        for fold in loop.folds:
            name, kind = fold.target.name, f"{fold.operator}_{fold.target.dtype}"
            yield f"{pad}{name} = af_join_{kind}({name}_before, af_block_{kind}({name}));"
        if not loop.folds and any(self._is_shared(s) for s in statements(loop.body)):
            yield f"{pad}__syncthreads();"


def _has_local(loop: Loop) -> bool:
    return any(isinstance(s, Local) for s in statements(loop.body))
