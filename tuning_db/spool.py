"""What could not be sent because the server was away: an export in a local file, imported when the
server is back. Rows have the identifiers that they would have had, so sending them twice is as
sending them once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse import records as r
from tuning_db import lines, rows
from tuning_db.errors import DatabaseError


@dataclass(frozen=True, slots=True)
class Sender:
    """The session of a row, as it was begun, and when the row was made."""

    session: lines.SessionLine | None
    created: str

    @property
    def line(self) -> lines.SessionLine:
        assert self.session is not None
        return self.session

    @property
    def uid(self) -> str | None:
        return None if self.session is None else self.session.uid


def measurement(
    origin: Sender, env: r.Environment, one: r.Measurement, uid: str
) -> list[lines.Line]:
    """All that a measurement needs to be imported where its workload is known."""
    digest = rows.environment_digest(env)
    return [
        lines.EnvironmentLine(digest, env),
        lines.CandidateLine(
            one.workload, one.candidate_digest, one.candidate, one.origin, one.kernels, one.groups
        ),
        lines.MeasurementLine(
            uid=uid,
            created=origin.created,
            session=origin.uid,
            environment=digest,
            workload=one.workload,
            candidate=one.candidate_digest,
            origin=one.origin,
            stage=one.stage,
            timing=one.timing,
            failure=_printable(one.failure),
            max_rel_error=rows.no_nan(one.max_rel_error),
            cost=one.cost,
            code=one.code,
        ),
    ]


def kernel(
    origin: Sender, env: r.Environment, one: r.KernelMeasurement, uid: str
) -> list[lines.Line]:
    """All that a measurement of a kernel needs to be imported."""
    digest = rows.environment_digest(env)
    own = replace(
        one, failure=_printable(one.failure), max_rel_error=rows.no_nan(one.max_rel_error)
    )
    return [
        lines.EnvironmentLine(digest, env),
        lines.KernelLine(uid, origin.created, origin.uid, digest, own),
    ]


def _printable(failure: r.Failure | None) -> r.Failure | None:
    return None if failure is None else replace(failure, message=rows.printable(failure.message))


class Spool:
    """A file that several processes may append to; what was appended is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_empty(self) -> bool:
        try:
            return self.path.stat().st_size == 0
        except FileNotFoundError:
            return True

    def append(self, added: Sequence[lines.Line]) -> None:
        """Raises DatabaseError if the file cannot be written."""
        with self._locked() as handle:
            size = _whole_size(handle)
            os.ftruncate(handle, size)
            texts = [] if size else [lines.write_header(lines.CURRENT)]
            texts += map(lines.write_line, added)
            data = "".join(f"{text}\n" for text in texts).encode()
            os.lseek(handle, 0, os.SEEK_END)
            try:
                _write(handle, data)
            except OSError:
                os.ftruncate(handle, size)
                raise
            os.fsync(handle)

    @contextmanager
    def emptied(self) -> Iterator[list[str]]:
        """The lines there are; they go when the block has come to its end."""
        with self._locked() as handle:
            os.lseek(handle, 0, os.SEEK_SET)
            with os.fdopen(os.dup(handle), "rb") as file:
                data = file.read(_whole_size(handle))
            yield data.decode().split("\n")[:-1]
            os.ftruncate(handle, 0)
            os.fsync(handle)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield handle
            finally:
                os.close(handle)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DatabaseError(
                f"what the server must be told later cannot be kept in {self.path}: {reason}"
            ) from error


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _whole_size(handle: int) -> int:
    """Bytes up to the end of the last whole line: a process may have died while it wrote."""
    size = os.fstat(handle).st_size
    while size:
        block = min(size, 1 << 16)
        data = os.pread(handle, block, size - block)
        if (end := data.rfind(b"\n")) >= 0:
            return size - block + end + 1
        size -= block
    return 0
