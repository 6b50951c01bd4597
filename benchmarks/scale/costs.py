"""What operations on the tuning database cost, as a table that was measured once and is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from autofuse.peers.types import BenchError

# Groups of a candidate in the operations that are timed: what plans of the recorded spaces have.
GROUPS = 4


@dataclass(frozen=True, slots=True)
class OperationCost:
    """Seconds that one operation takes of the server's processors and of the client's, and how
    often it waits for the server (`trips`); `writes`: it ends with a commit."""

    server_s: float
    client_s: float
    trips: int
    writes: bool


@dataclass(frozen=True, slots=True)
class ScaleCosts:
    """`server` and `machine` say what was measured, `rows` how many measurements were there;
    `row_bytes` is by table, indices included; `flush_s` what a commit waits for the disk;
    `connection_bytes` what the server keeps for a connection; `row_s` seconds for a row of what
    reads whole tables (export, import, compact); `lookup_s` seconds of a look-up of kernels in the
    table and in one that is divided by time."""

    server: str
    machine: str
    rows: int
    flush_s: float
    connection_bytes: float
    operations: Mapping[str, OperationCost]
    row_bytes: Mapping[str, float]
    row_s: Mapping[str, float]
    lookup_s: Mapping[str, float]


def save_costs(costs: ScaleCosts, path: Path) -> None:
    """Write a table."""
    path.write_text(json.dumps(asdict(costs), indent=1) + "\n", encoding="utf-8")


def load_costs(path: Path) -> ScaleCosts:
    """Read a table. Raises BenchError for a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        operations = {name: OperationCost(**one) for name, one in data.pop("operations").items()}
        return ScaleCosts(operations=operations, **data)
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{path} is no table of costs: {error}") from error
