"""The libraries of NVIDIA themselves, asked without a GPU: that they are found where pip puts them,
have what is called, and mean by numbers and sizes what is written here.

They are 600 MB, which no CI installs: `pip install nvidia-cublas nvidia-cufft cuda-bindings` beside
the extra cuda13 (a fresh environment with NVRTC 13.0 says what that makes of it too)."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.cuda import blas, blaslt, cufft, devices, graphs, maps, vendor
from autofuse.backends.cuda.nvrtc import compile_cubin, nvrtc_version
from autofuse.measure.worker.process import _FAULTS
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [name for name in packages if not _is_installed(name)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


ASKED = """
import json
from autofuse.backends.cuda.{file} import {file}_library
library = {file}_library()
print(json.dumps(library._name))
"""


@needs("nvidia-cublas", "nvidia-cufft")
@pytest.mark.parametrize("file", ["blas", "cufft", "blaslt"])
def test_each_library_is_found_by_itself(file: str) -> None:
    """In a process where nothing else, PyTorch for one, has loaded it."""
    name = {"blas": "cublas", "blaslt": "cublaslt"}.get(file, file)
    text = ASKED.replace("{file}_library", f"{name}_library").replace("{file}", file)
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-400:]
    assert Path(json.loads(found.stdout)).name.startswith("lib")


@needs("nvidia-cublas")
def test_cublas_has_what_is_called_and_refuses_without_a_driver() -> None:
    library = blas.cublas_library()
    number = ctypes.c_int()
    assert library.cublasGetProperty(0, ctypes.byref(number)) == 0
    assert number.value == vendor.cuda_major()
    with pytest.raises(blas.CublasError):  # CUBLAS_STATUS_NOT_INITIALIZED: no fault of ours
        blas.Cublas()


@needs("nvidia-cufft")
def test_cufft_has_what_is_called() -> None:
    library = cufft.cufft_library()
    number = ctypes.c_int()
    assert library.cufftGetVersion(ctypes.byref(number)) == 0
    # Its own major number is one less than CUDA's.
    assert number.value // 1000 == vendor.cuda_major() - 1


@needs("nvidia-cufft", "nvidia-cublas")
def test_numbers_of_libraries_are_those_of_cupy() -> None:
    from cupy.cuda import cublas as products
    from cupy.cuda import cufft as transforms
    from cupy.cuda import runtime

    kinds = {"fft": ("C2C", "Z2Z"), "rfft": ("R2C", "D2Z"), "irfft": ("C2R", "Z2D")}
    for kind, names in kinds.items():
        assert cufft._KINDS[kind][0] == tuple(getattr(transforms, f"CUFFT_{n}") for n in names)
    directions = transforms.CUFFT_FORWARD, transforms.CUFFT_INVERSE
    assert directions == (cufft._FORWARD, cufft._INVERSE)
    computed = blas._COMPUTE_32F, blas._COMPUTE_64F, blas._COMPUTE_TF32
    named = ("32F", "64F", "32F_FAST_TF32")
    assert computed == tuple(getattr(products, f"CUBLAS_COMPUTE_{n}") for n in named)
    for dtype, name in ((DType.F32, "32F"), (DType.F64, "64F"), (DType.F16, "16F"),
                        (DType.BF16, "16BF")):  # fmt: skip
        assert blas._TYPES[dtype] == getattr(runtime, f"CUDA_R_{name}")


# Attributes as cublasLt.h numbers them, and how many bytes each has.
DESCRIPTION = {
    blaslt._TRANSA: 4, blaslt._TRANSB: 4, blaslt._EPILOGUE: 4, blaslt._BIAS_POINTER: 8,
    blaslt._AUX_POINTER: 8, blaslt._AUX_LD: 8, blaslt._AUX_STRIDE: 8, blaslt._BIAS_TYPE: 4,
}  # fmt: skip
LAYOUT = {blaslt._BATCHES: 4, blaslt._BATCH_STRIDE: 8}
PREFERENCE = {blaslt._WORKSPACE: 8, **dict.fromkeys(blaslt._ALIGNMENTS, 4)}


def _sizes(library: Any, what: str, made: Any, attributes: Mapping[int, int]) -> dict[int, int]:
    found = {}
    ask = getattr(library, f"cublasLt{what}GetAttribute")
    ask.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t,
                    ctypes.c_void_p)  # fmt: skip
    for attribute in attributes:
        written = ctypes.c_size_t()
        assert ask(made, attribute, None, 0, ctypes.byref(written)) == 0
        found[attribute] = written.value
    return found


@needs("nvidia-cublas")
def test_attributes_of_cublaslt_have_the_sizes_that_are_written() -> None:
    library = blaslt.cublaslt_library()
    made = ctypes.c_void_p()
    assert library.cublasLtMatmulDescCreate(ctypes.byref(made), 68, 0) == 0
    assert _sizes(library, "MatmulDesc", made, DESCRIPTION) == DESCRIPTION
    assert library.cublasLtMatrixLayoutCreate(ctypes.byref(made), 14, 64, 32, 64) == 0
    assert _sizes(library, "MatrixLayout", made, LAYOUT) == LAYOUT
    assert library.cublasLtMatmulPreferenceCreate(ctypes.byref(made)) == 0
    assert _sizes(library, "MatmulPreference", made, PREFERENCE) == PREFERENCE


@needs("nvidia-cublas")
def test_what_is_set_is_what_the_library_has_by_default() -> None:
    """Enumerators whose defaults the documentation names: no transpose, no epilogue, no bias; and a
    layout that is asked for its type, rows, columns and leading dimension."""
    library = blaslt.cublaslt_library()
    made = ctypes.c_void_p()
    assert library.cublasLtMatmulDescCreate(ctypes.byref(made), 68, 0) == 0
    value = ctypes.c_int32(-1)
    ask = library.cublasLtMatmulDescGetAttribute
    for attribute, wanted in ((blaslt._TRANSA, 0), (blaslt._EPILOGUE, blaslt._DEFAULT)):
        assert ask(made, attribute, ctypes.byref(value), 4, None) == 0
        assert value.value == wanted


def _enumerators() -> Iterator[tuple[str, int, int]]:
    """What is written here, and what NVIDIA's own bindings say."""
    from cuda.bindings import driver as d

    kinds, swizzles = d.CUtensorMapDataType, d.CUtensorMapSwizzle
    yield "f16", maps.TYPES[DType.F16], kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    yield "bf16", maps.TYPES[DType.BF16], kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    yield "swizzle", max(maps._SWIZZLES.values()), swizzles.CU_TENSOR_MAP_SWIZZLE_128B
    interleave = d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    yield "interleave", maps._NO_INTERLEAVE, interleave
    relaxed = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    yield "capture", graphs._RELAXED_CAPTURE, relaxed
    attribute = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    yield "cooperative", graphs._COOPERATIVE, attribute
    results = d.CUresult
    yield "invalid", graphs._REFUSALS[0], results.CUDA_ERROR_INVALID_VALUE
    yield "unsupported", graphs._REFUSALS[1], results.CUDA_ERROR_NOT_SUPPORTED
    yield "update", graphs._REFUSALS[2], results.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE


@needs("cuda-bindings")
def test_numbers_of_the_driver_are_those_of_its_bindings() -> None:
    for name, ours, theirs in _enumerators():
        assert ours == int(theirs), name


@needs("nvidia-cuda-nvrtc")
def test_the_compiler_here_knows_every_target() -> None:
    """Of 13.0, which CuPy's wheels came with, as of a newer one."""
    assert find_spec("cupy") is not None and nvrtc_version().startswith("1")
    text = 'extern "C" __global__ void k(float *x) { *x = 1; }'
    for target in devices.TARGETS.values():
        assert compile_cubin(text, target.code_for)[0][:4] == b"\x7fELF"


class _NoLibrary:
    """A module of CuPy, and what is raised when one of its libraries is asked for."""

    def __getattr__(self, name: str) -> object:
        raise ImportError(f"no {name} here")


def test_a_library_that_is_missing_fails_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "import_module", lambda name: _NoLibrary())
    with pytest.raises(blas.CublasMissing, match="no cublas here") as found:
        blas.cublas_library.__wrapped__()
    assert isinstance(found.value, AutofuseError) and isinstance(found.value, _FAULTS)
