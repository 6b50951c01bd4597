"""The store: adds and answers records. Each write is one short transaction of its own, so that a
killed process loses at most the row it was writing, and processes may share one database."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from sqlalchemy import Engine, bindparam, select
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import best, kernels, leases, lines, queries, rows, served, settled, spool
from tuning_db import models as m
from tuning_db.clock import server_now
from tuning_db.engine import database_url, open_engine
from tuning_db.errors import DatabaseError
from tuning_db.leases import Lease
from tuning_db.sharing import SharedWork
from tuning_db.transactions import HURRIED_S
from tuning_db.upsert import (
    put,
    put_all,
    put_candidate,
    put_groups,
    replace_or_put_all,
    together,
)


class Store(SharedWork):
    """An open tuning database. Every method raises DatabaseError when the database cannot be used
    or a record refers to what is not in it; nothing is then written.

    A server that is away is waited for; meanwhile what sessions begun here measure goes into a
    local file, which is sent when it is back."""

    def __init__(self, engine: Engine, url: URL) -> None:
        super().__init__(engine, url)
        # The sessions begun here, by row number.
        self._sessions: dict[int, lines.SessionLine] = {}

    @staticmethod
    def open(url: str | os.PathLike[str] | None = None) -> Store:
        """Open the database at a SQLAlchemy URL or a file path, with tables if it is empty; None
        is the user's own database. One of an older schema is refused (`engine.upgrade`)."""
        parsed = database_url(url)
        return Store(open_engine(parsed), parsed)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- adding -----------------------------------------------------------------------------

    def add_environment(self, env: r.Environment) -> int:
        """Row number of an environment, added if it is new."""
        return self.write(lambda t: rows.ensure_environment(t, env))

    def add_workload(self, digest: str, text: str, name: str, nodes: int) -> None:
        """Add a workload; of one that is known the first text and name stay."""
        row = r.WorkloadRow(digest, text, rows.printable(name), nodes)
        self.write(lambda t: rows.ensure_workload(t, row))

    def add_groups(self, texts: Mapping[str, str]) -> None:
        """Add groups, or the texts of known groups, by digest."""

        def add(t: Transaction) -> None:
            put_groups(t, list(texts))
            for digest, text in sorted(texts.items()):
                rows.ensure_group(t, digest, text)

        self.write(add)

    def start_session(
        self, env: r.Environment, workload_digest: str, strategy: str, seed: int, budget_s: float
    ) -> int:
        """Begin a tuning session of a known workload; returns its row number."""
        if not -(2**63) <= seed < 2**63:
            raise DatabaseError(f"seed {seed} does not fit in 64 bits")
        uid = rows.new_uid()

        def start(t: Transaction) -> int:
            values = {
                "uid": uid,
                "environment_id": rows.ensure_environment(t, env),
                "workload_id": rows.workload_id(t, workload_digest),
                "strategy": strategy,
                "seed": seed,
                "budget_s": budget_s,
                "started": server_now(),
            }
            put(t, m.Session, values)
            return t.scalars(select(m.Session.id).where(m.Session.uid == uid)).one()

        number = self.write(start)
        digest, begun = rows.environment_digest(env), self.time()
        self._sessions[number] = lines.SessionLine(
            uid, digest, workload_digest, strategy, seed, budget_s, begun, None, None, ()
        )
        return number

    def add_measurement(
        self,
        session_id: int | None,
        env: r.Environment,
        measurement: r.Measurement,
        lease: Lease | None = None,
    ) -> bool:
        """Add one measurement or failure of a known workload, with its candidate and groups.

        Under a `lease` it is added, and the lease released, only while nobody else has it: False
        where somebody has, and nothing was added."""
        return self._add(session_id, env, (measurement,), lease, lease)

    def add_comparison(
        self,
        session_id: int,
        env: r.Environment,
        measurements: Sequence[r.Measurement],
        lease: Lease | None = None,
    ) -> bool:
        """As `add_measurement` of what a session has timed together, all of it or nothing; but the
        lease stays: the comparison is done once the session has ended."""
        return self._add(session_id, env, measurements, lease, None)

    def _add(
        self, session_id: int | None, env: r.Environment, measurements: Sequence[r.Measurement],
        lease: Lease | None, done: Lease | None,
    ) -> bool:  # fmt: skip
        """Add rows while `lease` is held, and release the lease of what is `done` with them."""
        named = [(one, rows.new_uid()) for one in measurements]
        for one, _ in named:
            rows.check(one)

        def add(t: Transaction) -> bool:
            queries.check_session(t, session_id)
            ids = {one.workload: rows.workload_id(t, one.workload) for one, _ in named}
            environment = rows.ensure_environment(t, env)
            with together(t):
                for one, uid in named:
                    workload, digest = ids[one.workload], one.candidate_digest
                    own = rows.candidate_values(one.candidate, one.origin, one.kernels)
                    candidate = rows.candidate_query(workload, digest).scalar_subquery()
                    values = rows.measurement_values(environment, candidate, session_id, one, uid)
                    put_candidate(t, workload, digest, own, one.groups)
                    put(t, m.Measurement, values, leases.is_held(lease))
                leases.release(t.connection(), done)
            return lease is None or all(queries.has_measurement(t, uid) for _, uid in named)

        def told() -> list[lines.Line]:
            own = self._own(session_id)
            return [line for one, uid in named for line in spool.measurement(own, env, one, uid)]

        return self.keep(add, told, True)

    def add_kernel(
        self, session_id: int | None, env: r.Environment, measurement: r.KernelMeasurement
    ) -> None:
        """Add one measurement or failure of a kernel, with its group if that is new."""
        self.add_kernels(session_id, env, (measurement,))

    def add_kernels(
        self,
        session_id: int | None,
        env: r.Environment,
        measurements: Sequence[r.KernelMeasurement],
    ) -> None:
        """As `add_kernel` of each, but in one transaction: all of them or none."""
        named = [(one, rows.new_uid()) for one in measurements]
        for one, _ in named:
            kernels.check(one)

        def add(t: Transaction) -> None:
            queries.check_session(t, session_id)
            environment = rows.ensure_environment(t, env)
            digest = bindparam("of_group", type_=m.Group.digest.type)
            group = select(m.Group.id).where(m.Group.digest == digest).scalar_subquery()
            values = [
                kernels.kernel_values(environment, group, session_id, one, uid)
                | {digest.key: one.group}
                for one, uid in named
            ]
            put_groups(t, sorted({one.group for one, _ in named}))
            put_all(t, m.KernelMeasurement, values)

        def told() -> list[lines.Line]:
            own = self._own(session_id)
            return [line for one, uid in named for line in spool.kernel(own, env, one, uid)]

        self.keep(add, told, None)

    def add_event(self, session_id: int, event: r.Event) -> None:
        """Append an event to a session; its candidate must have been measured."""
        at: list[int] = []  # found once: to add it again must not append it again

        def add(t: Transaction) -> None:
            session = queries.session_row(t, session_id)
            candidate = rows.candidate_id(t, session.workload_id, event.candidate_digest)
            if not at:
                at.append(rows.next_position(t, session_id))
            put(t, m.Event, rows.event_values(session_id, at[0], candidate, event))

        def told() -> list[lines.Line]:
            line = self._own(session_id).line
            return [replace(line, events=(*line.events, event))]

        self.keep(add, told, None)
        if (line := self._sessions.get(session_id)) is not None:
            self._sessions[session_id] = replace(line, events=(*line.events, event))

    def finish_session(self, session_id: int, result: r.SessionResult) -> None:
        """Write how a session ended, once; `best_digest` "" means that nothing worked."""
        tried: list[r.SessionResult] = []

        def finish(t: Transaction) -> None:
            session = queries.session_row(t, session_id)
            if session.ended is not None and queries.session_result(t, session) in tried:
                return
            if session.ended is not None:
                raise DatabaseError(f"session {session_id} has already ended")
            tried.append(result)
            rows.set_result(t, session, result)

        def told() -> list[lines.Line]:
            return [replace(self._own(session_id).line, ended=self.time(), result=result)]

        self.keep(finish, told, None)

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
        uid = rows.new_uid()
        return self.write(lambda t: best.promote(t, session_id, env, record, beaten, uid))

    def set_calibration(self, env: r.Environment, values: Mapping[str, float]) -> None:
        """Set measured constants of a device in one transaction, replacing older values."""
        for name, value in values.items():
            if not math.isfinite(value):
                raise DatabaseError(f"calibration '{name}' is not a finite number")

        def add(t: Transaction) -> None:
            environment = rows.ensure_environment(t, env)
            told = [
                {"environment_id": environment, "name": name, "value": value}
                for name, value in values.items()
            ]
            replace_or_put_all(t.connection(), m.Calibration, told)

        self.write(add)

    def _own(self, session: int | None) -> spool.Sender:
        """Where a row of a session comes from, for whoever reads it later."""
        if session is not None and session not in self._sessions:
            raise DatabaseError(f"session {session} was begun elsewhere, and the server is away")
        return spool.Sender(None if session is None else self._sessions[session], self.time())

    # --- asking -----------------------------------------------------------------------------

    def measured(
        self, env: r.Environment, workload_digest: str, after: int = 0
    ) -> dict[str, r.Measurement]:
        """The latest measurement of each candidate, by candidate digest, whose environment's must
        pairs equal those of `env`; failures included, unless they were the machine's fault. Of
        rows added `after` this number only (see `newest_measurement`)."""
        return self.read(lambda t: queries.measured(t, env, workload_digest, after))

    def newest_measurement(self) -> int:
        """The row number of the measurement that was added last; 0 where there is none."""
        return self.ask(queries.newest)

    def settled(
        self, env: r.Environment, workload: str, cache: str, wanted: Mapping[str, str], samples: int
    ) -> r.Settled | None:
        """What final comparisons in a cache state have settled of candidates, given with their
        codes: see `settled.settled`."""
        return self.read(lambda t: settled.settled(t, env, workload, cache, wanted, samples))

    def latest(self, env: r.Environment, workload: str, candidate: str) -> r.Measurement | None:
        """What `measured` has of one candidate, by the digests of workload and candidate."""
        # Mostly it is asked before anybody has measured: that takes one statement.
        if not self.ask(lambda c: served.is_told_of(c, env, workload, candidate)):
            return None
        return self.read(lambda t: queries.latest(t, env, workload, candidate))

    def kernels(
        self, env: r.Environment, groups: Iterable[str]
    ) -> dict[kernels.Key, r.KernelMeasurement]:
        """The latest measurement of each kernel of these group digests, by group, launch, cache
        state and code, whose environment's must pairs equal those of `env`; failures included,
        unless they were the machine's fault."""
        wanted = tuple(dict.fromkeys(groups))
        return self.read(lambda t: kernels.known(t, env, wanted))

    def newest_kernel(self) -> int:
        """The row number of the kernel that was added last, to ask `kernel_news` for what follows;
        0 where there is none. Raises Unreachable soon where the server is away."""
        return self.ask(kernels.newest, HURRIED_S)

    def kernel_news(
        self, env: r.Environment, workload: str, session_id: int, after: int
    ) -> tuple[int, list[r.KernelMeasurement]]:
        """Kernels that other sessions on a workload added after this row number, oldest first, and
        the number of the last of them. Raises Unreachable soon where the server is away."""
        return self.ask(lambda c: kernels.news(c, env, workload, session_id, after), HURRIED_S)

    def incumbent(self, env: r.Environment, workload: str, cache: str) -> r.BestPlan | None:
        """The best plan that another has to be timed against before it takes its place in this
        cache state; None where no plan was promoted yet."""
        return self.read(lambda t: best.incumbent(t, env, workload, cache))

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
        usual = self.ask(lambda c: served.served(c, env, workload_digest, cache, without))
        if usual is not None:
            return usual
        return self.read(lambda t: best.best(t, env, workload_digest, cache, without))

    def tuned(self, env: r.Environment, nodes: int) -> tuple[tuple[str, str], ...]:
        """Digest and canonical text of every workload of so many nodes that a plan was promoted
        for on this device."""
        with self.reading() as t:
            return queries.tuned(t, env, nodes)

    def measurements(
        self, workload: str, env: r.Environment | None = None
    ) -> tuple[r.Measurement, ...]:
        """Every measurement of a workload, oldest first; of matching devices if `env` is given."""
        return self.read(lambda t: queries.measurements(t, workload, env))

    def workloads(self) -> tuple[r.WorkloadRow, ...]:
        """Every workload, by name."""
        return self.read(lambda t: queries.workloads(t))

    def sessions(self, workload: str | None = None) -> tuple[r.SessionRow, ...]:
        """Sessions of a workload digest, or all, oldest first."""
        return self.read(lambda t: queries.sessions(t, workload))

    def events(self, session_id: int) -> tuple[r.Event, ...]:
        """Events of a session in order; none if there is no such session."""
        return self.read(lambda t: queries.events(t, session_id))

    def verdicts(self, session_id: int) -> tuple[r.Verdict, ...]:
        """Verdicts of a session in order; none if there is no such session."""
        return self.read(lambda t: queries.verdicts(t, session_id))

    def counts(self) -> dict[str, int]:
        """Rows per table, by table name."""
        return self.read(lambda t: queries.counts(t))

    def calibration(self, env: r.Environment) -> dict[str, float]:
        """Measured constants of exactly this environment, by name."""
        return self.read(lambda t: queries.calibration(t, env))
