"""Long tests of what must never be lost: see `run.KINDS` for what is done to it."""
