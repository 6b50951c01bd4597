"""A bundle of what a database knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256

from autofuse.backends.base import INTERFACE, ArrayLiteral, Artifact
from autofuse.backends.cpu.pool import pool_library
from autofuse.backends.cuda.program import CudaProgram
from autofuse.backends.registry import CPU_BACKEND, CUDA_BACKEND, Backend, emulated_backend
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.plan.types import candidate_from_json
from autofuse.records import BestPlan, Environment
from autofuse.runtime.compiled import signature_of
from autofuse.serving.bundle import ABOUT
from autofuse.serving.container import container, key_of
from autofuse.serving.cubins import stored_cubins, target_of_facts
from autofuse.serving.dnnl import calls_data
from autofuse.serving.entries import (
    Entry,
    StoredBinary,
    StoredElement,
    StoredType,
    Variant,
    entry_bytes,
)
from autofuse.serving.keys import Key
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import code_of
from tuning_db import Store


@dataclass
class Contents:
    """What goes into a bundle, by key; `notes` are sentences about what is left out."""

    version: str
    made: str
    data: dict[bytes, bytes] = field(default_factory=dict)
    workloads: list[str] = field(default_factory=list)
    names: dict[str, list[bytes]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def keep(self, content: bytes) -> bytes:
        """Add a content under its digest, which is returned."""
        key = sha256(content).digest()
        self.data[key] = content
        return key

    def add(self, entry: Entry, written: Iterable[str] = ()) -> None:
        """Add a workload, by its digest, its name, and digests of graphs that simplify to it."""
        text = entry_bytes(entry)
        self.data[key_of("workload", entry.workload)] = text
        for one in written:
            self.data[key_of("written", one)] = text
        self.names.setdefault(entry.name, []).append(text)
        self.workloads.append(entry.workload)

    def finished(self, key: Key | None, serial: int = 0) -> bytes:
        """The file, signed if there is a `key`. A name that several workloads have means none of
        them."""
        alone = {key_of("name", n): texts[0] for n, texts in self.names.items() if len(texts) == 1}
        about = {"made": self.made, "version": self.version, "workloads": self.workloads}
        return container({**self.data, **alone, ABOUT: json.dumps(about).encode()}, key, serial)


def _add_workloads(contents: Contents, store: Store) -> None:
    for row in store.workloads():
        variants = [_variant(plan, env, contents) for env, plan in known(store, row.digest)]
        if variants:
            contents.add(Entry(row.digest, row.name, None, tuple(variants)))
        else:
            contents.notes.append(f"{row.name} is left out: no plan of it has a time")


def make_bundle(
    contents: Contents, store: Store, graphs: Mapping[str, Graph] | None = None, *,
    binaries: bool = True, texts: bool = False,
) -> None:  # fmt: skip
    """Add the best plans of `graphs`, by name, on every device that they were tuned on; None: of
    every workload of the database, of which it has no graphs, so that no binaries can be built.

    With `binaries` a plan for this processor brings its library, one for a GPU its cubins (which
    NVRTC makes anywhere), with `texts` its sources. Raises
    AutofuseError for a graph of which the database knows no plan."""
    if graphs is None:
        _add_workloads(contents, store)
        return
    for name, graph in graphs.items():
        form = normal_form(graph)
        found = known(store, digest(form))
        if not found:
            raise AutofuseError(f"no plan is known for {name}: tune it first")
        variants = [_variant(plan, env, contents) for env, plan in found]
        if binaries or texts:
            variants = [_with_code(v, name, form, contents, binaries, texts) for v in variants]
        entry = Entry(digest(form), name, signature_of(form), tuple(variants))
        contents.add(entry, [digest(graph)])


def known(store: Store, workload: str) -> list[tuple[Environment, BestPlan]]:
    """The best plan of a workload on each device that it was tuned on, by the latest session."""
    latest = {(s.environment.device, s.environment.must): s for s in store.sessions(workload)}
    pairs = [(s.environment, store.best(s.environment, workload)) for s in latest.values()]
    return [(env, plan) for env, plan in pairs if plan and plan.measurement.timing is not None]


def _variant(plan: BestPlan, env: Environment, contents: Contents) -> Variant:
    one = plan.measurement
    assert one.timing is not None
    return Variant(
        device=env.device,
        must=env.must,
        stale=env.stale,
        candidate=one.candidate,
        plan_digest=one.candidate_digest,
        origin=one.origin,
        kernels=one.kernels,
        timing=asdict(one.timing),
        max_rel_error=one.max_rel_error,
        code=one.code,
        version=contents.version,
    )


def _with_code(
    variant: Variant, name: str, form: Graph, contents: Contents, binaries: bool, texts: bool
) -> Variant:
    """With the library and the sources of the plan, if code for its device can be made here."""
    backend = _backend_of(variant)
    if backend is None:
        return variant
    candidate = candidate_from_json(variant.candidate, variant.origin)
    if code_of(backend, form, candidate) != variant.code:
        contents.notes.append(f"{name} has no binary: other code would be built than was timed")
        return variant
    program = backend.program(form, candidate)
    sources = [(s.name, contents.keep(s.text.encode())) for s in program.sources if texts]
    variant = variant._replace(texts=tuple(sources))
    if not binaries:
        return variant
    if isinstance(program, CudaProgram):
        return variant._replace(cubins=stored_cubins(program, contents.keep))
    return variant._replace(binary=stored_binary(backend.build(program).artifact, contents))


def _backend_of(variant: Variant) -> Backend | None:
    """What makes code for the device of a variant: this processor, or a GPU that need not be
    here, if it is one that is known."""
    if variant.device == CPU_BACKEND.name and variant.must == CPU_BACKEND.environment().must:
        return CPU_BACKEND
    target = target_of_facts(dict(variant.must)) if variant.device == CUDA_BACKEND.name else None
    return None if target is None else emulated_backend(target)


def stored_binary(artifact: Artifact, contents: Contents) -> StoredBinary:
    """A library that was built here, and all that it takes to run it."""
    return StoredBinary(
        INTERFACE,
        contents.keep(artifact.path.read_bytes()),
        contents.keep(pool_library().read_bytes()),
        artifact.entry,
        artifact.workspace,
        artifact.blas,
        artifact.binding,
        tuple(_literal(one, contents) for one in artifact.constants),
        calls_data(artifact.calls),
    )


def _literal(one: ArrayLiteral, contents: Contents) -> tuple[StoredType, bytes]:
    array = one.array()
    type_ = StoredType(tuple(array.shape), StoredElement(str(array.dtype)))
    return type_, contents.keep(array.tobytes())
