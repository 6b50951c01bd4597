"""Programs that nobody here wrote: taken by name from other people's packages, tuned, and timed."""
