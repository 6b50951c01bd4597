"""Kernels measured alone; how far from optimal a session can still be."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("session", "event"):
        for column in ("gap", "residual_us"):
            op.add_column(table, sa.Column(column, sa.Double(), nullable=True))
    _kernel_measurement()
    for columns in (["group_id", "environment_id"], ["session_id"]):
        name = op.f(f"ix_kernel_measurement_{'_'.join(columns)}")
        op.create_index(name, "kernel_measurement", columns)


def downgrade() -> None:
    op.drop_table("kernel_measurement")
    for table in ("session", "event"):
        for column in ("gap", "residual_us"):
            op.drop_column(table, column)


def _kernel_measurement() -> None:
    op.create_table(
        "kernel_measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("created", sa.String(length=40), nullable=False),
        sa.Column("session_id", sa.Integer(), nullable=True),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("group_id", sa.Integer(), nullable=False),
        sa.Column("launch", sa.Text(), nullable=False),
        sa.Column("cache", sa.String(length=20), nullable=False),
        sa.Column("n", sa.Integer(), nullable=True),
        *_reals(True, "min_us", "q1_us", "median_us", "q3_us", "mean_us", "stdev_us"),
        sa.Column("stopped", sa.String(length=20), nullable=True),
        sa.Column("mode", sa.String(length=20), nullable=True),
        sa.Column("failure_kind", sa.String(length=40), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        *_reals(True, "max_rel_error"),
        *_reals(False, "codegen_s", "compile_s", "measure_s", "sampler_s"),
        *_reals(True, "bound_us"),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.CheckConstraint("cache IN ('cold', 'warm')", name=op.f("ck_kernel_measurement_cache")),
        sa.CheckConstraint(
            "(median_us IS NULL) <> (failure_kind IS NULL)",
            name=op.f("ck_kernel_measurement_outcome"),
        ),
        *(
            sa.ForeignKeyConstraint(
                [f"{other}_id"],
                [f"{table}.id"],
                name=op.f(f"fk_kernel_measurement_{other}_id"),
            )
            for other, table in (
                ("environment", "environment"),
                ("group", "group_"),
                ("session", "session"),
            )
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kernel_measurement")),
        sa.UniqueConstraint("uid", name=op.f("uq_kernel_measurement_uid")),
    )


def _reals(nullable: bool, *names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=nullable) for name in names]
