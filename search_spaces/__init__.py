"""The spaces of what may be chosen: fusion decisions and launch parameters."""

from search_spaces.cpu import CpuLaunchSpace
from search_spaces.cuda import CudaLaunchSpace
from search_spaces.fusion import FusionSpace
from search_spaces.launch import LaunchSpace

__all__ = ["CpuLaunchSpace", "CudaLaunchSpace", "FusionSpace", "LaunchSpace"]
