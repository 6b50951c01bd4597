"""The tuning database: every measurement, failure and session, by workload and device."""

from tuning_db.best import stale_with_code
from tuning_db.engine import default_url
from tuning_db.errors import DatabaseError
from tuning_db.store import Store

__all__ = ["DatabaseError", "Store", "default_url", "stale_with_code"]
