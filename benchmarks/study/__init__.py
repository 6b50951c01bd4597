"""The study: what fusion rules cost, over programs that are timed in turns."""
