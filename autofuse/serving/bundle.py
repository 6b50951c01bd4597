"""A bundle: best plans of many workloads in one file, asked without a database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autofuse.backends.machine import host_facts
from autofuse.runtime.loaded import LoadedPlan
from autofuse.serving.binary import artifact_of, why_not
from autofuse.serving.container import Container, key_of
from autofuse.serving.entries import Entry, Variant, entry_of
from autofuse.serving.keys import BundleError, read_key

# Names the file with the secret that bundles are checked with.
KEY_VARIABLE = "AUTOFUSE_BUNDLE_KEY"
ABOUT = key_of("about", "bundle")
HOST = "cpu"
_MATH = "math"


class HostFacts(NamedTuple):
    """What a plan is looked up for: the kind of device, what must match, and what may be stale."""

    device: str
    must: Mapping[str, str]
    stale: Mapping[str, str]


def this_host() -> HostFacts:
    """The processor that this process runs on."""
    return HostFacts(HOST, *host_facts())


class Bundle:
    """An open bundle; see `open_bundle`. Safe to use from several threads, and after a fork."""

    def __init__(self, container: Container) -> None:
        self.container = container

    @property
    def digest(self) -> str:
        """What names this very file, 64 hex digits."""
        return self.container.digest

    def close(self) -> None:
        """Let go of the file; plans that were loaded stay."""
        self.container.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def about(self) -> dict[str, Any]:
        """When the bundle was made, by which version, and what it holds."""
        data = self.container.get(ABOUT)
        try:
            found = json.loads(data or b"")
        except ValueError as error:
            raise BundleError(f"{self.container.path} does not say what it is: {error}") from None
        if not isinstance(found, dict):
            raise BundleError(f"{self.container.path} does not say what it is")
        return found

    def workload(self, digest: str) -> Entry | None:
        """What is known of a graph by the digest of its normal form."""
        return self._entry(key_of("workload", digest))

    def written(self, digest: str) -> Entry | None:
        """What is known of a graph by the digest of its canonical form as it was written."""
        return self._entry(key_of("written", digest))

    def named(self, name: str) -> Entry | None:
        """What is known of the workload called `name`; None where several are."""
        return self._entry(key_of("name", name))

    def _entry(self, key: bytes) -> Entry | None:
        data = self.container.get(key)
        if data is None:
            return None
        try:
            return entry_of(data)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise BundleError(
                f"{self.container.path} has an entry of another form: {error}"
            ) from None

    def has(self, workload: str) -> bool:
        """Whether there is a plan of a graph, by the digest of its normal form, for the processor
        that this process runs on."""
        entry = self.workload(workload)
        return entry is not None and not isinstance(variant_for(entry, this_host()), str)

    def entries(self) -> Iterator[Entry]:
        """Every workload, in the order of the list of the bundle."""
        for digest in self.about().get("workloads", ()):
            entry = self.workload(str(digest))
            if entry is None:
                raise BundleError(f"{self.container.path} lacks workload {digest}, which it lists")
            yield entry

    def verify(self) -> int:
        """Check every byte and every entry; how many workloads there are. Raises BundleError."""
        self.container.verify()
        count = 0
        for entry in self.entries():
            count += 1
            for variant in entry.variants:
                contents = [digest for _, digest in variant.texts]
                contents += [cubin.content for cubin in variant.cubins]
                if (binary := variant.binary) is not None:
                    contents += [binary.library, binary.pool, *(d for _, d in binary.literals)]
                if any(self.container.get(digest) is None for digest in contents):
                    raise BundleError(f"{self.container.path} lacks a content that it names")
        return count

    def load(self, name: str, constants: Mapping[str, Any] | None = None) -> LoadedPlan:
        """The plan of the workload called `name` for the processor that this process runs on, by
        its binary: no graph, compiler or database is asked for.

        `constants` has an array for each input that is declared constant, by key. Raises
        AutofuseError where the bundle has no such binary for this processor."""
        from autofuse.backends.library import load

        entry, here = self.named(name), this_host()
        if entry is None:
            raise BundleError(f"{self.container.path} has no workload called '{name}'")
        variant = variant_for(entry, here)
        if isinstance(variant, str):
            raise BundleError(f"no plan of '{name}' is for this device: {variant}")
        lacking = why_not(self.container, variant)
        if variant.binary is None or entry.signature is None or lacking:
            raise BundleError(f"the plan of '{name}' cannot be loaded by its name: {lacking}")
        artifact = artifact_of(self.container, variant.binary, entry.signature)
        notes = remarks(variant, here)
        return LoadedPlan(
            load(artifact), entry.signature, HOST, origin_of(variant), notes, constants
        )


def open_bundle(
    path: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    digest: str | None = None,
    least_serial: int = 0,
) -> Bundle:
    """Open the bundle in a file. `key` names the file with the secret that it was signed with, or
    with the public half of that pair (default: that of the variable AUTOFUSE_BUNDLE_KEY, if it is
    set); `digest` is what the bundle's digest has to be. Binaries are run only from bundles for
    which one of them is given. A bundle whose serial number is below `least_serial` is refused:
    that of the last one that was served keeps older ones out.

    Raises AutofuseError, in one sentence, for a file that is no bundle, is damaged, or is another
    than it should be."""
    named = os.environ.get(KEY_VARIABLE) or None if key is None else key
    checks = None if named is None else read_key(named)
    return Bundle(Container(path, checks, digest, least_serial))


AnyBundle = Bundle | str | os.PathLike[str]


def as_bundle(given: AnyBundle) -> Bundle:
    """A bundle that is open, or the one in a file."""
    return given if isinstance(given, Bundle) else open_bundle(given)


def variant_for(entry: Entry, here: HostFacts) -> Variant | str:
    """The best plan for a device, or why there is none."""
    alike = [v for v in entry.variants if v.device == here.device]
    same = [v for v in alike if dict(v.must) == here.must]
    for variant in same:
        if _MATH in here.must or not _changes_arithmetic(variant):
            return variant
    if same:
        return "its plan changes arithmetic, which is asked for by math='relaxed'"
    return _other_device(entry, here, alike)


def _other_device(entry: Entry, here: HostFacts, alike: Sequence[Variant]) -> str:
    if not alike:
        kinds = ", ".join(sorted({v.device for v in entry.variants})) or "nothing"
        return f"other device: its plans are for {kinds}, not {here.device}"
    nearest = min((dict(v.must) for v in alike), key=lambda must: len(differing(must, here.must)))
    key = differing(nearest, here.must)[0]
    return f"other device: {key} is {here.must.get(key)} here and {nearest.get(key)} there"


def _changes_arithmetic(variant: Variant) -> bool:
    """Whether a plan was tuned by a version that changed arithmetic unasked."""
    try:
        data = json.loads(variant.candidate)
        launches = [*data["launches"], *(one for body in data["bodies"] for one in body)]
        return any(launch.get(_MATH) == "relaxed" for launch in launches)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # no candidate: whoever reads it says so


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the pairs that are not in both."""
    return tuple(sorted(k for k in one.keys() | other.keys() if one.get(k) != other.get(k)))


def stale_by(variant: Variant, here: HostFacts) -> tuple[str, ...]:
    """What changed since a plan was timed, of what is known here."""
    return tuple(k for k in differing(dict(variant.stale), here.stale) if k in here.stale)


def remarks(variant: Variant, here: HostFacts) -> tuple[str, ...]:
    """A sentence where a time may no longer hold."""
    stale = stale_by(variant, here)
    return (f"stale: {', '.join(stale)} changed since it was measured",) if stale else ()


def origin_of(variant: Variant) -> str:
    """What a plan from a bundle says of where it comes from."""
    return f"bundle ({variant.origin})"
