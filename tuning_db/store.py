"""The store: adds and answers records. Each write is one short transaction of its own, so that a
killed process loses at most the row it was writing, and processes may share one database."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from sqlalchemy import Engine
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import best, kernels, queries, rows
from tuning_db import models as m
from tuning_db.engine import WRITES, database_url, open_engine, translated, url_name
from tuning_db.errors import DatabaseError


class Store:
    """An open tuning database. Every method raises DatabaseError when the database cannot be used
    or a record refers to what is not in it; nothing is then written."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine = engine
        self.url = url
        self._writer = engine.execution_options(**WRITES)

    @staticmethod
    def open(url: str | os.PathLike[str] | None = None) -> Store:
        """Open, creating or migrating it if need be, the database at a SQLAlchemy URL or a file
        path; None is the user's own database."""
        parsed = database_url(url)
        return Store(open_engine(parsed), parsed)

    @property
    def name(self) -> str:
        """The database's path, or its URL without the password."""
        return url_name(self.url)

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state of the database and writes nothing."""
        with translated(self.name), Transaction(self.engine) as t, t.begin():
            yield t

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that holds the write lock from the start; committed if all goes well."""
        with translated(self.name), Transaction(self._writer) as t, t.begin():
            t.connection()  # a session begins with its first statement: make that now
            yield t

    # --- adding -----------------------------------------------------------------------------

    def add_environment(self, env: r.Environment) -> int:
        """Row number of an environment, added if it is new."""
        with self.writing() as t:
            return rows.ensure_environment(t, env)

    def add_workload(self, digest: str, text: str, name: str, nodes: int) -> None:
        """Add a workload; of one that is known the first text and name stay."""
        with self.writing() as t:
            rows.ensure_workload(t, r.WorkloadRow(digest, text, rows.printable(name), nodes))

    def add_groups(self, texts: Mapping[str, str]) -> None:
        """Add groups, or the texts of known groups, by digest."""
        with self.writing() as t:
            for digest, text in texts.items():
                rows.ensure_group(t, digest, text)

    def start_session(
        self, env: r.Environment, workload_digest: str, strategy: str, seed: int, budget_s: float
    ) -> int:
        """Begin a tuning session of a known workload; returns its row number."""
        if not -(2**63) <= seed < 2**63:
            raise DatabaseError(f"seed {seed} does not fit in 64 bits")
        with self.writing() as t:
            row = m.Session(
                uid=rows.new_uid(),
                environment_id=rows.ensure_environment(t, env),
                workload_id=rows.workload_id(t, workload_digest),
                strategy=strategy,
                seed=seed,
                budget_s=budget_s,
                started=rows.now(),
            )
            t.add(row)
            t.flush()
            return row.id

    def add_measurement(
        self, session_id: int | None, env: r.Environment, measurement: r.Measurement
    ) -> None:
        """Add one measurement or failure of a known workload, with its candidate and groups."""
        one = measurement
        with self.writing() as t:
            if session_id is not None:
                queries.session_row(t, session_id)
            workload = rows.workload_id(t, one.workload)
            candidate, _ = rows.ensure_candidate(
                t,
                workload,
                one.candidate_digest,
                one.candidate,
                one.origin,
                one.kernels,
                one.groups,
            )
            environment = rows.ensure_environment(t, env)
            t.add(rows.measurement_row(environment, candidate, session_id, one))

    def add_kernel(
        self, session_id: int | None, env: r.Environment, measurement: r.KernelMeasurement
    ) -> None:
        """Add one measurement or failure of a kernel, with its group if that is new."""
        one = measurement
        with self.writing() as t:
            if session_id is not None:
                queries.session_row(t, session_id)
            environment = rows.ensure_environment(t, env)
            group, _ = rows.ensure_group(t, one.group)
            t.add(kernels.row_of(environment, group, session_id, one))

    def add_event(self, session_id: int, event: r.Event) -> None:
        """Append an event to a session; its candidate must have been measured."""
        with self.writing() as t:
            session = queries.session_row(t, session_id)
            candidate = rows.candidate_id(t, session.workload_id, event.candidate_digest)
            position = rows.next_position(t, session_id)
            t.add(rows.event_row(session_id, position, candidate, event))

    def finish_session(self, session_id: int, result: r.SessionResult) -> None:
        """Write how a session ended, once; `best_digest` "" means that nothing worked."""
        with self.writing() as t:
            session = queries.session_row(t, session_id)
            if session.ended is not None:
                raise DatabaseError(f"session {session_id} has already ended")
            rows.set_result(t, session, result, rows.now())

    def promote(
        self,
        session_id: int | None,
        env: r.Environment,
        record: r.Measurement,
        beaten: str | None,
    ) -> bool:
        """Make the candidate of `record` the best plan in the cache state it was timed in.

        `beaten` is the digest of the best candidate that `record` was timed against, as `best` gave
        it (None: there was none; the record's own: only its time is new). False, and nothing is
        written, if another is the best by now: time against that one and ask again. A record that
        the session has not stored yet is stored too."""
        with self.writing() as t:
            return best.promote(t, session_id, env, record, beaten)

    def set_calibration(self, env: r.Environment, name: str, value: float) -> None:
        """Set a measured constant of a device, replacing an older value."""
        if not math.isfinite(value):
            raise DatabaseError(f"calibration '{name}' is not a finite number")
        with self.writing() as t:
            environment = rows.ensure_environment(t, env)
            t.merge(m.Calibration(environment_id=environment, name=name, value=value))

    # --- asking -----------------------------------------------------------------------------

    def measured(self, env: r.Environment, workload_digest: str) -> dict[str, r.Measurement]:
        """The latest measurement of each candidate, by candidate digest, whose environment's must
        pairs equal those of `env`; failures included, unless they were the machine's fault."""
        with self.reading() as t:
            return queries.measured(t, env, workload_digest)

    def kernels(
        self, env: r.Environment, groups: Iterable[str]
    ) -> dict[kernels.Key, r.KernelMeasurement]:
        """The latest measurement of each kernel of these group digests, by group, launch, cache
        state and code, whose environment's must pairs equal those of `env`; failures included,
        unless they were the machine's fault."""
        wanted = tuple(dict.fromkeys(groups))
        with self.reading() as t:
            return kernels.known(t, env, wanted)

    def kernel_history(
        self, env: r.Environment, limit: int = 20_000
    ) -> list[tuple[str, r.KernelMeasurement]]:
        """The latest `limit` timed kernels that have facts, oldest first, whose environment's must
        pairs equal those of `env`; each with the digest of the workload it was measured for, ""
        if for none."""
        with self.reading() as t:
            return kernels.history(t, env, limit)

    def incumbent(self, env: r.Environment, workload: str, cache: str) -> r.BestPlan | None:
        """The best plan that another has to be timed against before it takes its place in this
        cache state; None where no plan was promoted yet."""
        with self.reading() as t:
            return best.incumbent(t, env, workload, cache)

    def best(
        self,
        env: r.Environment,
        workload_digest: str,
        cache: str | None = None,
        without: Collection[str] = (),
    ) -> r.BestPlan | None:
        """The best plan known for a workload on this device in a cache state ("cold" or "warm";
        None: the one that was promoted last), or None.

        That is the promoted plan (see `promote`), unless it failed since by its own fault. Where
        nothing was promoted it is the winner of the latest finished session, else the least latest
        median. What was learned under the same stale pairs goes first; a promoted plan gives way
        to it only where it is no slower, or where the plan itself was measured again under them.
        Candidates whose digests are in `without` are passed over.
        """
        with self.reading() as t:
            return best.best(t, env, workload_digest, cache, without)

    def tuned(self, env: r.Environment, nodes: int) -> tuple[tuple[str, str], ...]:
        """Digest and canonical text of every workload of so many nodes that a plan was promoted
        for on this device."""
        with self.reading() as t:
            return queries.tuned(t, env, nodes)

    def measurements(
        self, workload: str, env: r.Environment | None = None
    ) -> tuple[r.Measurement, ...]:
        """Every measurement of a workload, oldest first; of matching devices if `env` is given."""
        with self.reading() as t:
            return queries.measurements(t, workload, env)

    def workloads(self) -> tuple[r.WorkloadRow, ...]:
        """Every workload, by name."""
        with self.reading() as t:
            return queries.workloads(t)

    def sessions(self, workload: str | None = None) -> tuple[r.SessionRow, ...]:
        """Sessions of a workload digest, or all, oldest first."""
        with self.reading() as t:
            return queries.sessions(t, workload)

    def events(self, session_id: int) -> tuple[r.Event, ...]:
        """Events of a session in order; none if there is no such session."""
        with self.reading() as t:
            return queries.events(t, session_id)

    def verdicts(self, session_id: int) -> tuple[r.Verdict, ...]:
        """Verdicts of a session in order; none if there is no such session."""
        with self.reading() as t:
            return queries.verdicts(t, session_id)

    def counts(self) -> dict[str, int]:
        """Rows per table, by table name."""
        with self.reading() as t:
            return queries.counts(t)

    def calibration(self, env: r.Environment) -> dict[str, float]:
        """Measured constants of exactly this environment, by name."""
        with self.reading() as t:
            return queries.calibration(t, env)
