"""Plans as parts of the programs of other systems."""
