"""KernelBench: modules of PyTorch for which kernels are to be written, of levels 1 and 3.

Ouyang et al., "KernelBench: Can LLMs Write Efficient GPU Kernels?", 2025. Their sizes are those of
a large GPU; here they are cut, as is said beside each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.fetched.repository import Repository, file_module
from benchmarks.unseen.making import of_torch
from benchmarks.unseen.types import Made, Program, module

KERNELBENCH = Repository(
    "kernelbench", "https://github.com/ScalingIntelligence/KernelBench",
    "423217d9fda91e0c2d67e4a43bf62f96f6d104f1", "MIT",
)  # fmt: skip
Sizes = Mapping[str, int | tuple[int, ...] | list[int]]
# A file of a level, and the numbers of it that are others here.
FILES: Mapping[str, Sizes] = {
    "level1/1_Square_matrix_multiplication_": {"N": 512},
    "level1/4_Matrix_vector_multiplication_": {"M": 1024, "K": 4096},
    "level1/23_Softmax": {"batch_size": 256, "dim": 4096},
    "level1/36_RMSNorm_": {"batch_size": 4, "dim1": 64, "dim2": 64},
    "level1/40_LayerNorm": {"batch_size": 4, "dim1": 64, "dim2": 64},
    "level1/42_Max_Pooling_2D": {"batch_size": 2, "channels": 16, "height": 64, "width": 64},
    "level1/47_Sum_reduction_over_a_dimension": {"batch_size": 16, "dim1": 256, "dim2": 255},
    "level1/50_conv_standard_2D__square_input__square_kernel": {"batch_size": 1},
    "level1/86_conv_depthwise_separable_2D": {"batch_size": 1, "width": 64, "height": 64},
    "level1/88_MinGPTNewGelu": {"batch_size": 512, "dim": 2048},
    "level1/89_cumsum": {"batch_size": 256, "input_shape": (4096,)},
    "level1/95_CrossEntropyLoss": {
        "batch_size": 1024, "num_classes": 1024, "input_shape": (1024,)
    },
    "level1/97_ScaledDotProductAttention": {
        "batch_size": 1, "num_heads": 8, "sequence_length": 256, "embedding_dimension": 64
    },
    "level1/99_TripletMarginLoss": {"batch_size": 512, "input_shape": (1024,)},
    "level3/1_MLP": {"batch_size": 16, "input_size": 512, "layer_sizes": [1024, 1024],
                     "output_size": 512},
    "level3/4_LeNet5": {"batch_size": 64},
    "level3/6_GoogleNetInceptionModule": {"batch_size": 1, "height": 28, "width": 28},
    "level3/8_ResNetBasicBlock": {"batch_size": 1},
    "level3/14_DenseNet121DenseBlock": {"batch_size": 1, "height": 28, "width": 28},
    "level3/31_VisionAttention": {"batch_size": 1, "image_height": 24, "image_width": 24},
    "level3/39_GRU": {"batch_size": 4, "seq_len": 32, "num_layers": 2},
    "level3/43_MinGPTCausalAttention": {"batch_size": 1, "seq_len": 256, "n_embd": 256},
    "level3/44_MiniGPTBlock": {"batch_size": 1, "seq_len": 256, "n_embd": 256},
    "level3/46_NetVladWithGhostClusters": {"batch_size": 16},
    "level3/48_Mamba2ReturnY": {"batch_size": 2},
    "level3/50_ReLUSelfAttention": {"batch_size": 1, "max_seqlen": 256, "n_embd": 192,
                                    "n_head": 4},
}  # fmt: skip


def _made(file: str) -> Made:
    """The module of that file, with weights drawn from one seed, on inputs that the file draws."""
    torch = module("torch")
    torch.manual_seed(0)
    found = file_module(KERNELBENCH.folder / f"KernelBench/{file}.py")
    for name, value in FILES[file].items():
        getattr(found, name)  # a size that the file does not have is a fault of the table
        setattr(found, name, value)
    network = found.Model(*found.get_init_inputs())
    return of_torch(network, *found.get_inputs())


def _name(file: str) -> str:
    return f"kernelbench:{file.replace('level', '').replace('/', '-').partition('_')[0]}"


PROGRAMS = tuple(
    Program(
        _name(file), "network", "kernelbench", ("torch",), partial(_made, file),
        folder=KERNELBENCH.folder,
    )
    for file in FILES
)  # fmt: skip
