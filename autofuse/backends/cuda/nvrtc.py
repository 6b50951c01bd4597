"""CUDA text to a cubin with NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from autofuse.backends.base import CompileError, CompilerMissing
from autofuse.records import Blame

FLAGS = ("--std=c++17",)
MISSING = "no NVRTC found: install the extra cuda13 (or cuda12), which brings CuPy and NVRTC"


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """CuPy's binding of NVRTC; raises CompilerMissing."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:  # no CuPy, or no NVRTC to load
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CompilerMissing(f"{MISSING} ({reason})") from error
    return nvrtc


def nvrtc_version() -> str:
    """The version of NVRTC, such as "13.0"; raises CompilerMissing."""
    return ".".join(map(str, _nvrtc().getVersion()))


def compile_cubin(
    text: str, arch: str = "sm_90", flags: tuple[str, ...] = FLAGS
) -> tuple[bytes, str]:
    """The cubin of a CUDA program for `arch`, and the compiler's log ("" when it had nothing to
    say). Raises CompileError with the log, and CompilerMissing when CuPy or NVRTC is absent."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(text, "kernels.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, (f"-arch={arch}", *flags))
        except nvrtc.NVRTCError as error:
            log = str(nvrtc.getProgramLog(program)).strip("\x00\n ")
            blame = Blame.MACHINE if "OUT_OF_MEMORY" in str(error) else Blame.CANDIDATE
            text = f"NVRTC refused the program for {arch}: {log or error}"
            raise CompileError(text, blame) from error
        cubin: bytes = nvrtc.getCUBIN(program)
        return cubin, str(nvrtc.getProgramLog(program)).strip("\x00\n ")
    finally:
        nvrtc.destroyProgram(program)
