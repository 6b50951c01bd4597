"""What may be chosen: fusion decisions and launch parameters. One launch space per backend."""

from search_spaces.cpu import CpuLaunchSpace
from search_spaces.cuda import CudaLaunchSpace
from search_spaces.fusion import FusionSpace
from search_spaces.launch import LaunchSpace

SPACES: dict[str, LaunchSpace] = {
    "cpu": CpuLaunchSpace(),
    "cuda": CudaLaunchSpace(),
    "cuda-emulated": CudaLaunchSpace(),
}

__all__ = ["SPACES", "CpuLaunchSpace", "CudaLaunchSpace", "FusionSpace", "LaunchSpace"]
