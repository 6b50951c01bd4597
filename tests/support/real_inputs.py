"""Programs written by others, shared with the comparison against peers."""

from benchmarks.real_inputs import gymnax_cartpole, veros_gsw_dhdt

__all__ = ["gymnax_cartpole", "veros_gsw_dhdt"]
