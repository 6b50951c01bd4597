"""What dividing the table of kernels by time would cost those who ask for kernels by group."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.postgres import Server

PARTS, ASKED, ROUNDS = 24, 100, 30
_TABLE = "kernel_measurement"


def lookup_s(server: Server, database: str) -> dict[str, float]:
    """Seconds of a look-up of ASKED groups on one device: in the table as it is, and in a copy of
    it that is divided into PARTS by time."""
    statements = [
        f"CREATE TABLE divided (LIKE {_TABLE}) PARTITION BY RANGE (created)",
        *_parts(server, database),
        f"INSERT INTO divided SELECT * FROM {_TABLE}",
        "CREATE INDEX ON divided (group_id, environment_id)",
        "ANALYZE divided",
    ]
    for statement in statements:
        server.execute(statement, database)
    try:
        return {
            "one table": _seconds(server, database, _TABLE),
            f"{PARTS} parts": _seconds(server, database, "divided"),
        }
    finally:
        server.execute("DROP TABLE divided", database)


def _parts(server: Server, database: str) -> list[str]:
    query = (
        f"SELECT min(created) FROM (SELECT created, ntile({PARTS}) OVER (ORDER BY created) AS part "
        f"FROM {_TABLE}) AS cut GROUP BY part ORDER BY part"
    )
    begins = [str(row[0]) for row in server.execute(query, database)]
    ends = [f"'{end}'" for end in begins[1:]] + ["MAXVALUE"]
    return [
        f"CREATE TABLE divided_{n} PARTITION OF divided FOR VALUES FROM ('{begin}') TO ({end})"
        for n, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]


def _seconds(server: Server, database: str, table: str) -> float:
    query = (
        f"SELECT count(*) FROM {table} WHERE group_id BETWEEN 1 AND {ASKED} AND environment_id = 1"
    )
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        server.execute(query, database)
        taken.append(time.perf_counter() - begun)
    return median(taken)
