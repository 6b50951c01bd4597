"""The export format: JSON lines, one frozen dataclass per kind of line, checked when read.

Lines refer to each other by content digest or uid, never by row number. A float that JSON cannot
hold is written as "inf" or "-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from autofuse import records as r
from tuning_db import rows
from tuning_db.schema import MAJOR

FORMAT = "autofuse-tuning-db"
# Schemas before the current one whose exports can still be read.
OLDER = ("0001", "0002")
# Schemas that call the gap of a search "gap", and what it is called since.
ONE_GAP = ("0001", "0002", "0003", "0004")
_OLD_GAPS = {"gap": "search_gap", "bound_us": "search_floor_us"}
# Schemas whose exports have the same lines.
ALIKE = ("0003", "0004", MAJOR)
# What lines say of a proof, side by side with the other fields of what was proved.
_PROVED = {r.Event: rows.EVENT_PROOF, r.SessionResult: rows.SESSION_PROOF}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Header:
    format: str
    schema: str


CURRENT = Header(FORMAT, MAJOR)


@dataclass(frozen=True, slots=True)
class OldFailure:
    """A failure of a schema before 0003."""

    kind: r.FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class EnvironmentLine:
    digest: str
    environment: r.Environment


@dataclass(frozen=True, slots=True)
class GroupLine:
    digest: str
    text: str | None


@dataclass(frozen=True, slots=True)
class CandidateLine:
    workload: str
    digest: str
    json: str
    origin: str
    kernels: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionLine:
    uid: str
    environment: str
    workload: str
    strategy: str
    seed: int
    budget_s: float
    started: str
    ended: str | None
    result: r.SessionResult | None
    events: tuple[r.Event, ...]


@dataclass(frozen=True, slots=True)
class MeasurementLine:
    uid: str
    created: str
    session: str | None
    environment: str
    workload: str
    candidate: str
    origin: str
    stage: str
    timing: r.Timing | None
    failure: r.Failure | None
    max_rel_error: float | None
    cost: r.Cost
    code: str


@dataclass(frozen=True, slots=True)
class KernelLine:
    uid: str
    created: str
    session: str | None
    environment: str
    kernel: r.KernelMeasurement


@dataclass(frozen=True, slots=True)
class BestLine:
    """A promoted plan: the uid of its measurement says of whom, on what device and when taken."""

    workload: str
    cache: str
    measurement: str
    promoted: str


@dataclass(frozen=True, slots=True)
class CalibrationLine:
    environment: str
    name: str
    value: float


Line = (
    EnvironmentLine
    | r.WorkloadRow
    | GroupLine
    | CandidateLine
    | SessionLine
    | MeasurementLine
    | KernelLine
    | BestLine
    | CalibrationLine
)
KINDS: dict[str, type[Any]] = {
    "environment": EnvironmentLine,
    "workload": r.WorkloadRow,
    "group": GroupLine,
    "candidate": CandidateLine,
    "session": SessionLine,
    "measurement": MeasurementLine,
    "kernel": KernelLine,
    "best": BestLine,
    "calibration": CalibrationLine,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def kind_of(line: Line) -> str:
    """What a line calls its kind."""
    return _NAMES[type(line)]


def write_header(header: Header) -> str:
    return _dump(_encode(header))


def write_line(line: Line) -> str:
    """One line of JSON with sorted keys and its kind, without the newline."""
    return _dump({"kind": kind_of(line), **_encode(line)})


def read_header(text: str) -> Header:
    """Raises ValueError if the text is not the first line of an export."""
    header = _decode(Header, _load(text), "header")
    if header.format != FORMAT:
        raise ValueError(f"format is '{header.format}', not '{FORMAT}'")
    return header


def read_line(text: str, schema: str) -> Line:
    """Inverse of `write_line`, also for a line written under an older `schema`; raises ValueError
    naming the field that does not fit."""
    data = _load(text)
    name = data.pop("kind", None)
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"unknown kind {name!r}")
    if schema == "0001" and name == "session":
        data = _with_gaps(data)
    if schema in ONE_GAP and name == "session":
        data = _with_two_gaps(data)
    if schema in OLDER and name in ("measurement", "kernel"):
        data = _with_code(data, name)
    line: Line = _decode(KINDS[name], data, name)
    return line


def _with_code(data: dict[str, Any], name: str) -> dict[str, Any]:
    """A measurement of a schema before 0003 with the fields that 0003 added, nothing known."""
    one = data.get("kernel") if name == "kernel" else data
    if not isinstance(one, dict):
        return data
    one = {"code": "", **one}
    failure = one.get("failure")
    if isinstance(failure, dict) and failure.keys() == {"kind", "message"}:
        known = _decode(OldFailure, failure, f"{name}.failure")
        blame = rows.blame_of(known.kind, known.message)
        one["failure"] = {"blame": blame.value, **failure}
    return {**data, "kernel": one} if name == "kernel" else one


def _with_gaps(data: dict[str, Any]) -> dict[str, Any]:
    """A session of schema 0001 with the fields that 0002 added to its result and events."""

    def extended(part: Any) -> Any:
        return {"gap": None, "residual_us": None, **part} if isinstance(part, dict) else part

    events = data.get("events")
    if isinstance(events, list):
        data = {**data, "events": [extended(event) for event in events]}
    return {**data, "result": extended(data["result"])} if "result" in data else data


def _with_two_gaps(data: dict[str, Any]) -> dict[str, Any]:
    """A session of a schema before 0005, whose bound and gap were those of the search."""

    def renamed(part: Any, names: Mapping[str, str]) -> Any:
        if not isinstance(part, dict):
            return part
        return {**{names.get(name, name): value for name, value in part.items()}, "bound_us": None}

    events = data.get("events")
    if isinstance(events, list):
        data = {**data, "events": [renamed(event, _OLD_GAPS) for event in events]}
    found = data.get("result")
    return {**data, "result": renamed(found, _OLD_GAPS)} if isinstance(found, dict) else data


def _load(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _dump(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _encode(value: Any) -> Any:
    if is_dataclass(value):
        data = {f.name: _encode(getattr(value, f.name)) for f in fields(value)}
        if proved := _PROVED.get(type(value)):
            proof = data.pop("proof")
            data |= {name: proof[name] for name in proved}
        return data
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _decode(kind: type[_T], data: Any, where: str) -> _T:
    """Build `kind` from JSON data, checking every type on the way."""
    if is_dataclass(kind):
        return _decode_fields(kind, data, where)
    origin, args = get_origin(kind), get_args(kind)
    result: Any
    if origin in (Union, UnionType):
        inner = next(arg for arg in args if arg is not type(None))
        result = None if data is None else _decode(inner, data, where)
    elif origin is tuple:
        result = _decode_tuple(args, data, where)
    elif issubclass(kind, Enum):
        result = kind(data)
    else:
        result = _decode_plain(kind, data, where)
    decoded: _T = result
    return decoded


def _decode_fields(kind: type[_T], data: Any, where: str) -> _T:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    kept: Any = kind
    hints = _hints(kept)
    if data.keys() != hints.keys():
        wrong = sorted(data.keys() ^ hints.keys())
        raise ValueError(f"{where} has missing or unknown fields: {', '.join(wrong)}")
    values = {k: _decode(hint, data[k], f"{where}.{k}") for k, hint in hints.items()}
    if proved := _PROVED.get(kept):
        values["proof"] = r.Proof(**{name: values.pop(name) for name in proved})
    return kind(**values)


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    """The types of what a line says, by name."""
    hints = get_type_hints(kind)
    if proved := _PROVED.get(kind):
        hints.pop("proof")
        hints |= dict.fromkeys(proved, float | None)
    return hints


def _decode_tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ValueError(f"{where} is not a list")
    kinds = [args[0]] * len(data) if args[-1] is Ellipsis else list(args)
    if len(kinds) != len(data):
        raise ValueError(f"{where} has {len(data)} items instead of {len(kinds)}")
    return tuple(_decode(kind, item, where) for kind, item in zip(kinds, data, strict=True))


def _decode_plain(kind: type[Any], data: Any, where: str) -> Any:
    if kind is float and data in ("inf", "-inf"):
        return float(data)
    if kind is float and type(data) is int:
        return float(data)
    if type(data) is not kind:
        raise ValueError(f"{where} is not of type {kind.__name__}")
    if kind is str:
        data.encode()  # a lone surrogate is a ValueError here, before it reaches the driver
        if "\x00" in data:  # where SQLite ends a text that it compares
            raise ValueError(f"{where} holds a NUL")
    if kind is int and not -(2**63) <= data < 2**63:
        raise ValueError(f"{where} does not fit in 64 bits")
    return data
