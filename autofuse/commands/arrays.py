"""Arrays of a graph in .npz files, under the names of its inputs and outputs."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.graph.keys import input_keys, unique_keys
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

_DAMAGED = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def output_keys(graph: Graph) -> tuple[str, ...]:
    """One key per output: its name, or out0, out1, ... where names are missing or not unique."""
    return unique_keys(graph.output_names or [""] * len(graph.outputs), "out")


def _opened(path: Path) -> Any:
    try:
        archive = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise AutofuseError(f"no such file: {path}") from None
    except IsADirectoryError:
        raise AutofuseError(f"cannot read {path}: it is a directory") from None
    except PermissionError:
        raise AutofuseError(f"cannot read {path}: permission denied") from None
    except _DAMAGED:
        raise AutofuseError(f"{path} is not an .npz file") from None
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise AutofuseError(f"{path} is not an .npz file: it holds one array without a name")
    return archive


def read_arrays(
    path: Path, graph: Graph, held: Mapping[str, np.ndarray] | None = None
) -> tuple[tuple[np.ndarray, ...], tuple[str, ...]]:
    """The inputs of `graph` by position, and the keys of the file that no input has. `held` are
    inputs that the file need not have.

    Shapes and dtypes must be those of the inputs; a bf16 input may be stored as float32. Raises
    AutofuseError naming the key.
    """
    with _opened(path) as archive:
        keys, known = input_keys(graph), held or {}
        missing = [key for key in keys if key not in archive.files and key not in known]
        if missing:
            found = ", ".join(archive.files) or "nothing"
            raise AutofuseError(f"{path} has no array '{missing[0]}' (it has: {found})")
        arrays = tuple(
            _fitted(_member(archive, key, path), key, wanted, path)
            if key in archive.files
            else known[key]
            for key, wanted in zip(keys, graph.input_types, strict=True)
        )
        return arrays, tuple(sorted({*archive.files} - {*keys}))


def _member(archive: Mapping[str, np.ndarray], key: str, path: Path) -> np.ndarray:
    try:
        return np.asarray(archive[key])
    except _DAMAGED as error:
        # NumPy refuses arrays of Python objects by a ValueError that speaks of pickle.
        reason = "it holds Python objects" if "pickle" in str(error).lower() else "it is damaged"
        raise AutofuseError(f"array '{key}' of {path} cannot be read: {reason}") from None


def _fitted(array: np.ndarray, key: str, wanted: TensorType, path: Path) -> np.ndarray:
    if array.shape != wanted.shape:
        raise AutofuseError(
            f"array '{key}' of {path} has shape {_shape(array.shape)}, "
            f"but the graph wants {_shape(wanted.shape)}"
        )
    dtype = wanted.dtype.numpy
    if wanted.dtype is DType.BF16 and array.dtype == np.dtype("V2"):
        return array.view(dtype)  # how NumPy writes a dtype that it does not know
    if wanted.dtype is DType.BF16 and array.dtype == np.float32:
        return array.astype(dtype)
    if array.dtype != dtype:
        raise AutofuseError(
            f"array '{key}' of {path} has dtype {array.dtype}, but the graph wants {dtype}"
        )
    return np.ascontiguousarray(array, dtype).reshape(wanted.shape)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An uncompressed .npz file; bf16 arrays become float32, which holds them exactly."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            plain = array.astype(np.float32) if array.dtype == DType.BF16.numpy else array
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(plain), allow_pickle=False)
