"""What tests have in common: programs, fakes, planted faults, ways to run and to compare."""
