"""What need not be done on a GPU: the kernels of small and of headline programs, compiled for a
device that is elsewhere, in a cache that travels in the folder of `gpu_check`.

A kernel is found again by its text, its flags and the version of NVRTC, so the same one must be
there. Whatever is not found is compiled there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.backends.registry import emulated_backend
from autofuse.devices import DEVICES, DeviceKind
from autofuse.errors import AutofuseError
from autofuse.limits import usable_cores
from benchmarks.dry import DRY
from benchmarks.gpu_classes import PROGRAMS, Program, SmokeCase, program_cases
from benchmarks.gpu_headlines import HEADLINES
from benchmarks.run import Say, sentence
from search_spaces import CudaLaunchSpace

# The cache in the folder of `gpu_check`, and the variable that caches go by.
CACHE, VARIABLE = "cache", "AUTOFUSE_CACHE"
# A word after so many kernels.
SAID = 50


def prepared_programs(names: tuple[str, ...]) -> Mapping[str, Program]:
    """Programs whose kernels are compiled beforehand (none: all, those of headlines too)."""
    if names:
        return {name: PROGRAMS[name] for name in names}
    return {**PROGRAMS, **{f"headline {name}": one.program for name, one in HEADLINES.items()}}


def prepare(
    out: Path, target: Target, size: str, names: tuple[str, ...], say: Say
) -> dict[str, Any]:
    """Fill the cache in `out` for `target`, with programs at `size`; how many cases were built,
    which could not be, and how large the cache is in bytes. Raises CompilerMissing, OSError."""
    with travelling_cache(out, make=True):
        cases = list(program_cases(standing_for(target), size, prepared_programs(names)))
        failed = dict(_failures(target, cases, say))
        cache = out / CACHE
        nbytes = sum(p.stat().st_size for p in cache.rglob("*") if p.is_file())
    return {
        "target": str(target), "nvrtc": nvrtc_version(), "asked": len(cases),
        "built": len(cases) - len(failed), "failed": failed, "bytes": nbytes,
    }  # fmt: skip


def told(found: dict[str, Any]) -> str:
    """What was prepared, in words."""
    failed = [f"{name}: {why}" for name, why in found["failed"].items()]
    last = (
        f"{found['built']} of {found['asked']} cases are compiled for {found['target']} by NVRTC "
        f"{found['nvrtc']}, which must be there too: {found['bytes'] / 2**20:.0f} MiB in {CACHE}/"
    )
    return "\n".join([*failed, last])


def standing_for(target: Target) -> DeviceKind:
    """A device of which plans and texts are made, and no more."""
    return replace(
        DEVICES[DRY], backend=emulated_backend(target), launches=lambda _: CudaLaunchSpace(target)
    )


def _failures(target: Target, cases: list[SmokeCase], say: Say) -> Iterator[tuple[str, str]]:
    backend = emulated_backend(target)

    def build(case: SmokeCase) -> str:
        try:
            build_cuda(backend.program(case.graph, case.candidate))
        except AutofuseError as error:
            return sentence(error)
        return ""

    with ThreadPoolExecutor(usable_cores()) as pool:
        for count, (case, why) in enumerate(zip(cases, pool.map(build, cases), strict=True), 1):
            if count % SAID == 0:
                say(f"{count} of {len(cases)}")
            if why:
                yield case.name, why


@contextmanager
def travelling_cache(out: Path, make: bool = False) -> Iterator[None]:
    """The cache in `out`, where there is one, is meanwhile that of this process and its
    children."""
    cache, before = out / CACHE, os.environ.get(VARIABLE)
    if make:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not cache.is_dir():
        yield
        return
    os.environ[VARIABLE] = str(cache)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
