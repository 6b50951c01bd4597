"""Libraries of NVIDIA that are called by ctypes, with their functions declared."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.ops.types import AutofuseError


def cuda_major() -> int:
    """The release of CUDA whose libraries are used: the one of the compiler."""
    return int(nvrtc_version().split(".")[0])


def vendor_library(
    title: str, module: str, file: str, signatures: Mapping[str, tuple[Any, ...]],
    missing: type[AutofuseError],
) -> Any:  # fmt: skip
    """The library `file` with the argument types of its functions, which needs no driver to be
    loaded. Raises `missing`, in one sentence about `title`."""
    try:
        # CuPy's module is bound to the library, wherever it was installed, and so loads it. It is
        # an attribute that CuPy makes when it is asked for; some are no submodules.
        getattr(import_module("cupy.cuda"), module)
        library = ctypes.CDLL(file)
        for name, arguments in signatures.items():
            getattr(library, name).argtypes = arguments
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        # The last from cuda-pathfinder, by which newer releases of CuPy look for libraries.
        reason = str(error).partition("\n")[0]
        raise missing(
            f"no {title} of CUDA {cuda_major()} found: install the extra cuda13 (or cuda12) "
            f"({reason})"
        ) from error
    return library
