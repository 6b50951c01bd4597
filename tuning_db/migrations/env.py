"""Run by Alembic: migrate on the connection, and in the transaction, that the caller holds."""

from alembic import context

from tuning_db.models import Base
from tuning_db.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
