"""Who does what until when."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lease",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("expires", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_lease")),
    )


def downgrade() -> None:
    op.drop_table("lease")
