"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _environment()
    _group()
    _workload()
    _calibration()
    _candidate()
    _candidate_group()
    _session()
    _event()
    _measurement()
    for column in ("candidate_id", "session_id"):
        op.create_index(op.f(f"ix_measurement_{column}"), "measurement", [column])
    _session_baseline()
    _session_failure()
    _verdict()


def downgrade() -> None:
    for table in (
        "verdict",
        "session_failure",
        "session_baseline",
        "measurement",
        "event",
        "session",
        "candidate_group",
        "candidate",
        "calibration",
        "workload",
        "group_",
        "environment",
    ):
        op.drop_table(table)


def _environment() -> None:
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("must", sa.Text(), nullable=False),
        sa.Column("stale", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("digest", name=op.f("uq_environment_digest")),
    )
    op.create_index(
        op.f("ix_environment_fingerprint"), "environment", ["fingerprint"], unique=False
    )


def _group() -> None:
    op.create_table(
        "group_",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_group_")),
        sa.UniqueConstraint("digest", name=op.f("uq_group__digest")),
    )


def _workload() -> None:
    op.create_table(
        "workload",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workload")),
        sa.UniqueConstraint("digest", name=op.f("uq_workload_digest")),
    )


def _calibration() -> None:
    op.create_table(
        "calibration",
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name=op.f("fk_calibration_environment_id")
        ),
        sa.PrimaryKeyConstraint("environment_id", "name", name=op.f("pk_calibration")),
    )


def _candidate() -> None:
    op.create_table(
        "candidate",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("json", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("kernels", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workload.id"], name=op.f("fk_candidate_workload_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidate")),
        sa.UniqueConstraint("workload_id", "digest", name=op.f("uq_candidate_workload_id_digest")),
    )


def _candidate_group() -> None:
    op.create_table(
        "candidate_group",
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidate.id"], name=op.f("fk_candidate_group_candidate_id")
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["group_.id"], name=op.f("fk_candidate_group_group_id")
        ),
        sa.PrimaryKeyConstraint("candidate_id", "position", name=op.f("pk_candidate_group")),
    )
    op.create_index(
        op.f("ix_candidate_group_group_id"), "candidate_group", ["group_id"], unique=False
    )


def _session() -> None:
    op.create_table(
        "session",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("budget_s", sa.Double(), nullable=False),
        sa.Column("started", sa.String(length=40), nullable=False),
        sa.Column("ended", sa.String(length=40), nullable=True),
        sa.Column("finished", sa.Boolean(), nullable=True),
        sa.Column("trials", sa.Integer(), nullable=True),
        sa.Column("measured", sa.Integer(), nullable=True),
        sa.Column("codegen_s", sa.Double(), nullable=True),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("measure_s", sa.Double(), nullable=True),
        sa.Column("sampler_s", sa.Double(), nullable=True),
        sa.Column("best_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["best_id"], ["candidate.id"], name=op.f("fk_session_best_id")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name=op.f("fk_session_environment_id")
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workload.id"], name=op.f("fk_session_workload_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("uid", name=op.f("uq_session_uid")),
    )
    op.create_index(op.f("ix_session_workload_id"), "session", ["workload_id"], unique=False)


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("codegen_s", sa.Double(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=False),
        sa.Column("measure_s", sa.Double(), nullable=False),
        sa.Column("sampler_s", sa.Double(), nullable=False),
        sa.Column("best_us", sa.Double(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("bound_us", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidate.id"], name=op.f("fk_event_candidate_id")
        ),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_event_session_id")),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_event")),
    )


def _measurement() -> None:
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("created", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=True),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("stage", sa.String(length=20), nullable=False),
        sa.Column("n", sa.Integer(), nullable=True),
        *_reals(True, "min_us", "q1_us", "median_us", "q3_us", "mean_us", "stdev_us"),
        sa.Column("cache", sa.String(length=20), nullable=True),
        sa.Column("stopped", sa.String(length=20), nullable=True),
        sa.Column("mode", sa.String(length=20), nullable=True),
        sa.Column("failure_kind", sa.String(length=40), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("max_rel_error", sa.Double(), nullable=True),
        *_reals(False, "codegen_s", "compile_s", "measure_s", "sampler_s"),
        sa.CheckConstraint(
            "stage IN ('search', 'final', 'baseline')", name=op.f("ck_measurement_stage")
        ),
        sa.CheckConstraint(
            "(median_us IS NULL) <> (failure_kind IS NULL)", name=op.f("ck_measurement_outcome")
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidate.id"], name=op.f("fk_measurement_candidate_id")
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name=op.f("fk_measurement_environment_id")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_measurement_session_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
        sa.UniqueConstraint("uid", name=op.f("uq_measurement_uid")),
    )


def _session_baseline() -> None:
    op.create_table(
        "session_baseline",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("candidate_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidate.id"], name=op.f("fk_session_baseline_candidate_id")
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_session_baseline_session_id")
        ),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_session_baseline")),
    )


def _session_failure() -> None:
    op.create_table(
        "session_failure",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name=op.f("fk_session_failure_session_id")
        ),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_session_failure")),
    )


def _verdict() -> None:
    op.create_table(
        "verdict",
        sa.Column("session_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("other", sa.Text(), nullable=False),
        sa.Column("other_us", sa.Double(), nullable=False),
        sa.Column("best_us", sa.Double(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_verdict_session_id")),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_verdict")),
    )


def _reals(nullable: bool, *names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=nullable) for name in names]
