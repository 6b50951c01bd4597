"""What a bundle says of one workload: plain data, read without graphs and ops.

An entry has a variant for each device that the workload was tuned on. A binary belongs to the
device's `must` pairs, which hold its instruction set: nothing else may run it. These are named
tuples: a dataclass takes a process that only serves several times as long to make.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from autofuse.backends.base import ArrayType
from autofuse.plan.program.bound import NOTHING_BOUND, Binding
from autofuse.runtime.loaded import Signature

FactPairs = tuple[tuple[str, str], ...]


class StoredElement(NamedTuple):
    """An element type by its name in NumPy, or in ml_dtypes."""

    name: str

    @property
    def numpy(self) -> np.dtype:
        if self.name == "bfloat16":
            import ml_dtypes  # slow to import, and most plans have no such array

            wide: np.dtype = np.dtype(ml_dtypes.bfloat16)
            return wide
        return np.dtype(self.name)


class StoredType(NamedTuple):
    """Shape and element type of an array; `text` is how a `TensorType` would be printed."""

    shape: tuple[int, ...]
    dtype: StoredElement
    text: str = ""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.numpy.itemsize

    def __str__(self) -> str:
        return self.text


class StoredBinary(NamedTuple):
    """A library ready to run, by the SHA-256 of its bytes; `interface` is how it is called (see
    `INTERFACE`). `pool` is that of its thread pool, `literals` those of its constants, `calls`
    are of oneDNN, as plain data."""

    interface: int
    library: bytes
    pool: bytes
    entry: str
    workspace: int
    blas: bool
    binding: Binding
    literals: tuple[tuple[StoredType, bytes], ...]
    calls: tuple[Any, ...]


class StoredCubin(NamedTuple):
    """The machine code of one kernel of a GPU: its name, the SHA-256 of what it was compiled from
    (see `cubins.text_key`) and of its bytes, and the compiler's numbers."""

    name: str
    text: bytes
    content: bytes
    facts: Mapping[str, int]


class Variant(NamedTuple):
    """The best plan of a workload on one device: the text of its candidate, who proposed it, and
    how it was timed (`timing` in microseconds), by which version of autofuse. `code` is the digest
    of the code that was timed; `texts` are its sources, by name and SHA-256; on a GPU `cubins` are
    its kernels."""

    device: str
    must: FactPairs
    stale: FactPairs
    candidate: str
    plan_digest: str
    origin: str
    kernels: int
    timing: Mapping[str, Any]
    max_rel_error: float | None
    code: str
    version: str
    binary: StoredBinary | None = None
    texts: tuple[tuple[str, bytes], ...] = ()
    cubins: tuple[StoredCubin, ...] = ()


class Entry(NamedTuple):
    """A workload by its digest, and the best plan of each device, as a bundle keeps them."""

    workload: str
    name: str
    signature: Signature | None
    variants: tuple[Variant, ...]


def entry_of(data: bytes) -> Entry:
    """Inverse of `entry_bytes`; raises ValueError, KeyError or TypeError on anything else."""
    given = json.loads(data)
    signature = given["signature"]
    return Entry(
        given["workload"],
        given["name"],
        None if signature is None else _signature(signature),
        tuple(_variant(each) for each in given["variants"]),
    )


def entry_bytes(entry: Entry) -> bytes:
    """An entry as JSON."""
    signature = entry.signature
    data = {
        "workload": entry.workload,
        "name": entry.name,
        "signature": None if signature is None else _signature_data(signature),
        "variants": [_variant_data(each) for each in entry.variants],
    }
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _type(data: Any) -> StoredType:
    shape, numpy, text = data
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"no shape: {shape}")
    return StoredType(tuple(shape), StoredElement(numpy), text)


def _type_data(one: ArrayType) -> list[Any]:
    return [one.shape, str(one.dtype.numpy), str(one)]


def _signature(data: Any) -> Signature:
    types, outputs = (tuple(_type(t) for t in data[key]) for key in ("inputs", "outputs"))
    return Signature(tuple(data["names"]), types, tuple(data["fixed"]), outputs)


def _signature_data(one: Signature) -> dict[str, Any]:
    return {
        "names": one.names,
        "inputs": [_type_data(t) for t in one.types],
        "fixed": one.fixed,
        "outputs": [_type_data(t) for t in one.outputs],
    }


def _pairs(data: Mapping[str, str]) -> FactPairs:
    return tuple(sorted(data.items()))


def _variant(data: Any) -> Variant:
    binary = data["binary"]
    return Variant(
        device=data["device"],
        must=_pairs(data["must"]),
        stale=_pairs(data["stale"]),
        candidate=data["candidate"],
        plan_digest=data["plan_digest"],
        origin=data["origin"],
        kernels=data["kernels"],
        timing=data["timing"],
        max_rel_error=data["max_rel_error"],
        code=data["code"],
        version=data["version"],
        binary=None if binary is None else _binary(binary),
        texts=tuple((name, bytes.fromhex(digest)) for name, digest in data["texts"]),
        # Bundles that were made before there were any say nothing of them.
        cubins=tuple(_cubin(one) for one in data.get("cubins", ())),
    )


def _cubin(data: Any) -> StoredCubin:
    name, text, content, facts = data
    return StoredCubin(name, bytes.fromhex(text), bytes.fromhex(content), facts)


def _variant_data(one: Variant) -> dict[str, Any]:
    return one._asdict() | {
        "must": dict(one.must),
        "stale": dict(one.stale),
        "timing": dict(one.timing),
        "binary": None if one.binary is None else _binary_data(one.binary),
        "texts": [[name, digest.hex()] for name, digest in one.texts],
        "cubins": [[c.name, c.text.hex(), c.content.hex(), dict(c.facts)] for c in one.cubins],
    }


def _binary(data: Any) -> StoredBinary:
    bound = data["binding"]
    return StoredBinary(
        data["interface"],
        bytes.fromhex(data["library"]),
        bytes.fromhex(data["pool"]),
        data["entry"],
        data["workspace"],
        data["blas"],
        Binding(tuple(bound[0]), tuple(bound[1]), bound[2], bound[3]) if bound else NOTHING_BOUND,
        tuple((_type(t), bytes.fromhex(digest)) for t, digest in data["literals"]),
        tuple(data["calls"]),
    )


def _binary_data(one: StoredBinary) -> dict[str, Any]:
    bound = one.binding
    own = [bound.bound, bound.read, bound.held, bound.workspace]
    return {
        "interface": one.interface,
        "library": one.library.hex(),
        "pool": one.pool.hex(),
        "entry": one.entry,
        "workspace": one.workspace,
        "blas": one.blas,
        "binding": None if bound == NOTHING_BOUND else own,
        "literals": [[_type_data(t), digest.hex()] for t, digest in one.literals],
        "calls": one.calls,
    }
