"""The tables. Times are `_us` or `_s` as in the records; dates are ISO 8601 UTC text, so that
they sort and export alike on every database.

`uid` columns identify a row across databases, which is what makes importing a union.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, MetaData, String, Text, text
from sqlalchemy import Double as Real
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import UniqueConstraint

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {float: Real}  # noqa: RUF012 - SQLAlchemy reads it as a plain dict


class Environment(Base):
    """A device fingerprint. `fingerprint` hashes the must pairs: rows that share it share times;
    `digest` hashes everything: rows of an older driver are kept beside the new ones."""

    __tablename__ = "environment"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    fingerprint: Mapped[str] = mapped_column(String(64), index=True)
    device: Mapped[str] = mapped_column(Text)
    must: Mapped[str] = mapped_column(Text)
    stale: Mapped[str] = mapped_column(Text)


class Workload(Base):
    __tablename__ = "workload"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    text: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    nodes: Mapped[int]


class Group(Base):
    """A fusion group by content; `text` is unknown until somebody tells it."""

    __tablename__ = "group_"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    text: Mapped[str | None] = mapped_column(Text)


class Candidate(Base):
    """`origin` is who proposed it first."""

    __tablename__ = "candidate"
    __table_args__ = (UniqueConstraint("workload_id", "digest"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"))
    digest: Mapped[str] = mapped_column(String(64))
    json: Mapped[str] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(Text)
    kernels: Mapped[int]


class CandidateGroup(Base):
    __tablename__ = "candidate_group"
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    group_id: Mapped[int] = mapped_column(ForeignKey("group_.id"), index=True)


class Session(Base):
    """A tuning session; the columns after `ended` are its result, NULL until it ends."""

    __tablename__ = "session"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"), index=True)
    strategy: Mapped[str] = mapped_column(Text)
    seed: Mapped[int] = mapped_column(BigInteger)
    budget_s: Mapped[float]
    started: Mapped[str] = mapped_column(String(40))
    ended: Mapped[str | None] = mapped_column(String(40))
    finished: Mapped[bool | None]
    trials: Mapped[int | None]
    measured: Mapped[int | None]
    codegen_s: Mapped[float | None]
    compile_s: Mapped[float | None]
    measure_s: Mapped[float | None]
    sampler_s: Mapped[float | None]
    best_id: Mapped[int | None] = mapped_column(ForeignKey("candidate.id"))
    search_gap: Mapped[float | None]
    residual_us: Mapped[float | None]
    bound_us: Mapped[float | None]


class SessionFailure(Base):
    """How many candidates of a session failed, by kind."""

    __tablename__ = "session_failure"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    count: Mapped[int]


class SessionBaseline(Base):
    __tablename__ = "session_baseline"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"))


class Verdict(Base):
    __tablename__ = "verdict"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    other: Mapped[str] = mapped_column(Text)
    other_us: Mapped[float]
    best_us: Mapped[float]
    ratio: Mapped[float]
    low: Mapped[float]
    high: Mapped[float]
    outcome: Mapped[str] = mapped_column(String(20))


class Event(Base):
    """One row per improvement of the incumbent, with the seconds spent so far."""

    __tablename__ = "event"
    session_id: Mapped[int] = mapped_column(ForeignKey("session.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    trial: Mapped[int]
    codegen_s: Mapped[float]
    compile_s: Mapped[float]
    measure_s: Mapped[float]
    sampler_s: Mapped[float]
    best_us: Mapped[float]
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"))
    origin: Mapped[str] = mapped_column(Text)
    search_floor_us: Mapped[float | None]
    search_gap: Mapped[float | None]
    residual_us: Mapped[float | None]
    bound_us: Mapped[float | None]


class Measurement(Base):
    """Either the timing columns or the failure columns are set, never both.

    `code` is NULL where nobody knows which code ran, `failure_blame` in rows of schemas before
    0003 (see `rows.blame_of`)."""

    __tablename__ = "measurement"
    __table_args__ = (
        CheckConstraint("stage IN ('search', 'final', 'baseline')", name="stage"),
        CheckConstraint("(median_us IS NULL) <> (failure_kind IS NULL)", name="outcome"),
        # With each best plan it is asked whether that ever failed, however often it was timed.
        Index(
            "ix_measurement_failed",
            "candidate_id",
            sqlite_where=text("failure_kind IS NOT NULL"),
            postgresql_where=text("failure_kind IS NOT NULL"),
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[str] = mapped_column(String(40))
    session_id: Mapped[int | None] = mapped_column(ForeignKey("session.id"), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"), index=True)
    origin: Mapped[str] = mapped_column(Text)
    stage: Mapped[str] = mapped_column(String(20))
    n: Mapped[int | None]
    min_us: Mapped[float | None]
    q1_us: Mapped[float | None]
    median_us: Mapped[float | None]
    q3_us: Mapped[float | None]
    mean_us: Mapped[float | None]
    stdev_us: Mapped[float | None]
    cache: Mapped[str | None] = mapped_column(String(20))
    stopped: Mapped[str | None] = mapped_column(String(20))
    mode: Mapped[str | None] = mapped_column(String(20))
    failure_kind: Mapped[str | None] = mapped_column(String(40))
    failure_message: Mapped[str | None] = mapped_column(Text)
    failure_blame: Mapped[str | None] = mapped_column(String(20))
    max_rel_error: Mapped[float | None]
    codegen_s: Mapped[float]
    compile_s: Mapped[float]
    measure_s: Mapped[float]
    sampler_s: Mapped[float]
    code: Mapped[str | None] = mapped_column(String(64))


class BestPlan(Base):
    """The best plan of a workload on a device in one cache state: the measurement that made it so,
    which knows candidate, environment and session, and when."""

    __tablename__ = "best_plan"
    __table_args__ = (CheckConstraint("cache IN ('cold', 'warm')", name="cache"),)
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    cache: Mapped[str] = mapped_column(String(20), primary_key=True)
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"))
    promoted: Mapped[str] = mapped_column(String(40))


class KernelMeasurement(Base):
    """One kernel alone, on no particular workload; timing or failure, `code` and
    `failure_blame` as in `measurement`.

    `facts` is a JSON list of name and number pairs."""

    __tablename__ = "kernel_measurement"
    __table_args__ = (
        CheckConstraint("cache IN ('cold', 'warm')", name="cache"),
        CheckConstraint("(median_us IS NULL) <> (failure_kind IS NULL)", name="outcome"),
        # Who asks knows thousands of groups and one device.
        Index(None, "group_id", "environment_id"),
        # Or wants the latest times of one device, whatever their groups. It is for that question
        # alone: SQLite, which counts no rows, would take it for the first one too.
        Index(
            None,
            "environment_id",
            "created",
            sqlite_where=text("failure_kind IS NULL"),
            postgresql_where=text("failure_kind IS NULL"),
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[str] = mapped_column(String(40))
    session_id: Mapped[int | None] = mapped_column(ForeignKey("session.id"), index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    group_id: Mapped[int] = mapped_column(ForeignKey("group_.id"))
    launch: Mapped[str] = mapped_column(Text)
    cache: Mapped[str] = mapped_column(String(20))
    n: Mapped[int | None]
    min_us: Mapped[float | None]
    q1_us: Mapped[float | None]
    median_us: Mapped[float | None]
    q3_us: Mapped[float | None]
    mean_us: Mapped[float | None]
    stdev_us: Mapped[float | None]
    stopped: Mapped[str | None] = mapped_column(String(20))
    mode: Mapped[str | None] = mapped_column(String(20))
    failure_kind: Mapped[str | None] = mapped_column(String(40))
    failure_message: Mapped[str | None] = mapped_column(Text)
    failure_blame: Mapped[str | None] = mapped_column(String(20))
    max_rel_error: Mapped[float | None]
    codegen_s: Mapped[float]
    compile_s: Mapped[float]
    measure_s: Mapped[float]
    sampler_s: Mapped[float]
    bound_us: Mapped[float | None]
    facts: Mapped[str] = mapped_column(Text)
    code: Mapped[str | None] = mapped_column(String(64))


class Lease(Base):
    """Who does a piece of work until when; whoever takes over what has expired has another token,
    which fences off what the former holder still writes."""

    __tablename__ = "lease"
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    token: Mapped[str] = mapped_column(String(64))
    owner: Mapped[str] = mapped_column(Text)
    expires: Mapped[str] = mapped_column(String(40))


class Calibration(Base):
    """A measured constant of a device, such as its bandwidth."""

    __tablename__ = "calibration"
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    value: Mapped[float]
