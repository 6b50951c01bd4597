"""The gap of a search and the bound on any plan are two figures.

What was called bound and gap until now held for the kernels of one search at the launches that it
tried: it is kept under that name, and of rows that are there already no bound is known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004.2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("event", "bound_us", new_column_name="search_floor_us")
    for table in ("event", "session"):
        op.alter_column(table, "gap", new_column_name="search_gap")
        op.add_column(table, sa.Column("bound_us", sa.Double(), nullable=True))


def downgrade() -> None:
    for table in ("event", "session"):
        op.drop_column(table, "bound_us")
        op.alter_column(table, "search_gap", new_column_name="gap")
    op.alter_column("event", "search_floor_us", new_column_name="bound_us")
