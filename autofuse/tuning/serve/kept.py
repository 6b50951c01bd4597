"""What was decided once and would be decided the same again, for processes that come later.

It lies in the build cache, under a key that says all that it followed from, this program's own text
among it. What the cache has dropped is decided again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autofuse.backends.cache import BuildCache, content_key
from autofuse.backends.cpu.blas import blas_name
from autofuse.backends.cpu.onednn import OneDnnError, onednn
from autofuse.baselines import BASELINES
from autofuse.cost.bounds import Calibration
from autofuse.devices import DeviceKind
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.plan.types import Candidate, PlanError, candidate_from_json
from autofuse.records import Environment
from autofuse.tuning.plans import untuned_candidate
from search_spaces.launch import LaunchSpace

_SUFFIX = ".kept.json"
_TEXTS = ("*.py", "*.c", "*.h")


def kept_untuned(
    graph: Graph, kind: DeviceKind, peaks: Calibration | None, space: LaunchSpace | None = None
) -> Candidate:
    """`untuned_candidate`, searched for once on a machine."""
    more = (*BASELINES, _libraries(), str(peaks and peaks.to_mapping()), str(usable_cores()))
    key = kept_key("untuned", digest(graph), kind.backend.environment(), more)
    found = recalled(key)
    if found is not None:
        with suppress(PlanError, KeyError, TypeError):  # a damaged note is none
            return candidate_from_json(found["plan"], found["origin"])
    made = untuned_candidate(graph, kind, peaks, space)
    keep(key, {"plan": made.to_json(), "origin": made.origin})
    return made


def kept_key(what: str, graph: str, environment: Environment, more: Sequence[str] = ()) -> str:
    """The key of `what` was decided for a graph, by digest, in an environment."""
    told = (str(environment.must), str(environment.stale))
    return content_key([what, own_text(), graph, environment.device, *told, *more])


def recalled(key: str) -> dict[str, Any] | None:
    """What is kept under a key; a damaged note is none."""
    found = BuildCache().find(key, _SUFFIX)
    if found is None:
        return None
    try:
        data = json.loads(found[0].read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def keep(key: str, data: Mapping[str, Any]) -> None:
    """Keep plain data under a key; on a full disk it is decided again next time."""
    with suppress(OSError):
        BuildCache().put_text(key, _SUFFIX, json.dumps(dict(data)))


def _libraries() -> str:
    """What products may be a call of."""
    try:
        return f"{blas_name()} {onednn().name}"
    except OneDnnError:
        return blas_name()


@lru_cache(maxsize=1)
def own_text() -> str:
    """The digest of this program's own files: another text may decide otherwise."""
    found = sha256()
    for path in sorted(_files()):
        found.update(path.read_bytes())
    return found.hexdigest()[:32]


def _files() -> Iterator[Path]:
    for package in ("autofuse", "search_spaces"):
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            for pattern in _TEXTS:
                yield from Path(root).rglob(pattern)
