"""Eight processes and an import write to a database while it is tuned into."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.actors import Crowd
from benchmarks.soak.kills import BUDGET_S, PATIENCE_S
from benchmarks.soak.ledger import acknowledged, damage, lost, rows
from benchmarks.soak.types import Round
from tuning_db import Store
from tuning_db.transfer import export_lines

WRITERS = 8
OWN, OTHER = "a" * 32, "b" * 32


def play(folder: Path, seed: int, count: int = 100) -> Round:
    """Everybody ends well, every acknowledged row and every imported one is there, once."""
    db, log, file = folder / "tuning.db", folder / "acknowledged.jsonl", folder / "other.jsonl"
    writes = {"do": "write", "workload": OWN, "log": str(log), "db": str(db), "count": count}
    jobs = [{**writes, "writer": f"w{n}"} for n in range(WRITERS)]
    jobs.append({"do": "import", "db": str(db), "path": str(file)})
    jobs.append(
        {"do": "tune", "db": str(db), "log": str(log), "source": "zoo:softmax:small",
         "budget_s": BUDGET_S, "seed": seed}
    )  # fmt: skip
    problems = []
    with Crowd(folder) as crowd:
        crowd.start([{**writes, "workload": OTHER, "writer": "other", "db": str(folder / "o.db")}])
        crowd.ended(PATIENCE_S)
        with Store.open(folder / "o.db") as store:
            file.write_text("\n".join(export_lines(store)) + "\n", encoding="utf-8")
        crowd.start(jobs)
        codes = crowd.ended(PATIENCE_S)
        if codes != [0] * len(jobs):
            problems.append(f"writers, an import and a tune ended with {codes}:\n{crowd.words()}")
    problems += [*damage(db), *lost(db, log)]
    there, said = rows(db), acknowledged(log)
    made = [k for k in there if k[1] in (OWN, OTHER) or k[1].startswith(("w", "other-"))]
    # Two rows each, a measurement and a kernel, of the writers and of the one imported.
    wanted = 2 * count * (WRITERS + 1)
    if len(made) != wanted or any(there[key] != 1 for key in made):
        problems.append(f"{len(made)} made-up rows are there instead of {wanted}, or some twice")
    return Round(said.total(), tuple(problems))
