"""CUDA text to a cubin with NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
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
        return _whole_cubin(program), str(nvrtc.getProgramLog(program)).strip("\x00\n ")
    finally:
        nvrtc.destroyProgram(program)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The NVRTC that CuPy has loaded: a name that is loaded already is not searched for again."""
    return ctypes.CDLL(f"libnvrtc.so.{_nvrtc().getVersion()[0]}")


def _whole_cubin(program: int) -> bytes:
    """All bytes of a compiled program: CuPy's `getCUBIN` takes the last one for a string's end."""
    library, handle, size = _library(), ctypes.c_void_p(program), ctypes.c_size_t(0)
    code = library.nvrtcGetCUBINSize(handle, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    code = code or library.nvrtcGetCUBIN(handle, room)
    if code:
        raise CompileError(f"NVRTC does not hand out what it compiled (error {code})")
    return room.raw
