"""Kernels of GPUs in a bundle: cubins by the text that they were compiled from, so that a process
that serves waits for no compiler. Where this version writes other text, none of them is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from autofuse.backends.base import Source
from autofuse.backends.cuda.build import CudaArtifact, build_cuda, cuda_artifact
from autofuse.backends.cuda.devices import TARGETS, Target
from autofuse.backends.cuda.facts import CubinFacts
from autofuse.backends.cuda.program import CudaProgram
from autofuse.serving.binary import content_of, in_memory
from autofuse.serving.container import Container
from autofuse.serving.entries import StoredCubin, Variant
from autofuse.serving.keys import BundleError


def text_key(source: Source, target: Target) -> bytes:
    """What a kernel was compiled from: its text and flags, and the architecture. Not by which
    NVRTC: what must match is that a driver of this architecture runs it."""
    return sha256("\0".join((target.arch, *source.flags, source.text)).encode()).digest()


def target_of_facts(must: Mapping[str, str]) -> Target | None:
    """The GPU of the table that these must pairs are of, None for others."""
    alike = (t for t in TARGETS.values() if (t.arch, str(t.sms)) == (must["arch"], must["sms"]))
    return next((t for t in alike if t.name in must["model"].replace(" ", "")), None)


def stored_cubins(program: CudaProgram, keep: Callable[[bytes], bytes]) -> tuple[StoredCubin, ...]:
    """The kernels of a program, compiled here; `keep` adds a content and gives its digest. Raises
    CompileError."""
    artifact = build_cuda(program).artifact
    paths, facts = dict(artifact.cubins), dict(artifact.facts)
    return tuple(
        StoredCubin(
            source.name, text_key(source, program.target), keep(paths[source.name].read_bytes()),
            asdict(facts[source.name]),
        )
        for source in program.sources
    )  # fmt: skip


def artifact_with(bundle: Container, variant: Variant, program: CudaProgram) -> CudaArtifact | None:
    """A program with the cubins of a variant; None unless all of its kernels are those. Raises
    BundleError for a content that is missing or damaged."""
    known = {one.text: one for one in variant.cubins}
    cubins: dict[str, Path] = {}
    facts: dict[str, CubinFacts] = {}
    for source in program.sources:
        one = known.get(text_key(source, program.target))
        if one is None:
            return None
        if not content_of(bundle, one.content).startswith(b"\x7fELF"):
            raise BundleError(f"the bundle {bundle.path} has no machine code of {source.name}")
        cubins[source.name] = in_memory(bundle, one.content)
        facts[source.name] = CubinFacts(**one.facts)
    return cuda_artifact(program, cubins, facts)
