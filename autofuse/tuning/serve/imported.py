"""Lines of an export that somebody else made, before they are added: what they call themselves is
worked out again, and whoever is told of them is told where they come from."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from autofuse.errors import AutofuseError
from autofuse.plan.types import candidate_from_json
from autofuse.records import WorkloadRow
from tuning_db.errors import DatabaseError
from tuning_db.lines import CandidateLine, Line, MeasurementLine

# Says of a plan that it was measured elsewhere and came in a file.
IMPORTED = "imported: "
_BASELINE = "baseline"


def vetted(line: Line) -> Line:
    """A line as it is added. Raises DatabaseError where a digest is not that of what it names, and
    for a plan that no kernel can be."""
    match line:
        case WorkloadRow():
            _check(line.digest, line.text, "workload")
        case CandidateLine():
            _check(line.digest, line.json, "candidate")
            try:
                candidate_from_json(line.json)
            except AutofuseError as error:
                raise DatabaseError(f"candidate {line.digest[:40]}: {error}") from error
            return replace(line, origin=_marked(line.origin))
        case MeasurementLine() if line.stage != _BASELINE:
            # A baseline is known by its name, which its plan follows from here too.
            return replace(line, origin=_marked(line.origin))
    return line


def _check(digest: str, text: str, what: str) -> None:
    if sha256(text.encode("utf-8", "replace")).hexdigest()[:32] != digest:
        raise DatabaseError(f"{what} does not have the digest it claims ({ascii(digest)[:40]})")


def _marked(origin: str) -> str:
    return origin if origin.startswith(IMPORTED) else f"{IMPORTED}{origin}"
