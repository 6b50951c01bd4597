"""Benchmarks behind scripts/bench_*, scripts/gpu_check and scripts/record_space; not installed."""
