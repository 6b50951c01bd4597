"""Candidates that failed: whether one ever did is asked with each best plan. It only adds."""

import sqlalchemy as sa
from alembic import op

revision = "0004.2"
down_revision = "0004.1"
branch_labels = None
depends_on = None

NAME = "ix_measurement_failed"


def upgrade() -> None:
    # On PostgreSQL it was built beforehand, beside those who write (see `expand.py`).
    failed = sa.text("failure_kind IS NOT NULL")
    op.create_index(
        NAME,
        "measurement",
        ["candidate_id"],
        sqlite_where=failed,
        postgresql_where=failed,
        if_not_exists=True,
    )


def downgrade() -> None:
    op.drop_index(NAME, "measurement")
