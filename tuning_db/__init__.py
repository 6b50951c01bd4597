"""The tuning database: every measurement, failure and session, by workload and device."""

from tuning_db.best import stale_with_code
from tuning_db.engine import default_url
from tuning_db.errors import DatabaseError, Unreachable
from tuning_db.leases import Lease
from tuning_db.store import Store

__all__ = ["DatabaseError", "Lease", "Store", "Unreachable", "default_url", "stale_with_code"]
