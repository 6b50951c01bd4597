"""Kernels of a device by time. It only adds: programs of 0004 go on."""

import sqlalchemy as sa
from alembic import op

revision = "0004.1"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = "ix_kernel_measurement_environment_id_created"


def upgrade() -> None:
    # On PostgreSQL it was built beforehand, beside those who write (see `expand.py`).
    timed = sa.text("failure_kind IS NULL")
    op.create_index(
        NAME,
        "kernel_measurement",
        ["environment_id", "created"],
        sqlite_where=timed,
        postgresql_where=timed,
        if_not_exists=True,
    )


def downgrade() -> None:
    op.drop_index(NAME, "kernel_measurement")
