"""Networks with random weights: timm, transformers, and ONNX files inside packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.unseen.making import of_onnx, of_torch
from benchmarks.unseen.types import Made, Program, module

TIMM = (
    ("resnet18", 96), ("mobilenetv3_small_100", 128), ("convnext_atto", 96),
    ("vit_tiny_patch16_224", 224), ("mixer_s32_224", 224), ("efficientnet_b0", 96),
    ("poolformer_s12", 96), ("ghostnet_100", 96), ("regnety_002", 96),
)  # fmt: skip
# Of the final table.
DRAWN = {"ghostnet_100", "regnety_002", "Albert", "Roberta", "data/silero_vad_16k_op15.onnx"}
# A configuration, what is overridden in it, and the shape of the tokens or numbers it takes.
_SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 256}  # fmt: skip
TRANSFORMERS: Mapping[str, tuple[Mapping[str, Any], tuple[int, ...]]] = {
    "Bert": (_SMALL, (2, 64)),
    "Albert": (_SMALL, (1, 64)),
    "Roberta": (_SMALL, (1, 64)),
    "GPT2": ({"n_embd": 128, "n_layer": 2, "n_head": 4, "use_cache": False}, (1, 64)),
    "Llama": ({**_SMALL, "num_key_value_heads": 2, "use_cache": False, "vocab_size": 1000},
              (1, 64)),
    "ViT": (_SMALL, (1, 3, 224, 224)),
    "Wav2Vec2": ({**_SMALL, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
                 (1, 8000)),
    "ConvNext": ({"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 2, 1]}, (1, 3, 96, 96)),
    "Mamba": ({"hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 1000, "use_cache": False},
              (1, 32)),
}  # fmt: skip


def _named_operators(torch: Any) -> None:
    """The operators that torchvision asks for when it is imported. Its wheels are built for CUDA
    and do not load beside PyTorch for CPUs; none of these networks calls them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


# A library of operators lasts as long as its object.
_KEPT: list[Any] = []


def _timm(name: str, size: int) -> Made:
    torch = module("torch")
    _named_operators(torch)
    timm = module("timm")
    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False)
    return of_torch(network, torch.randn(1, 3, size, size))


def _transformer(name: str) -> Made:
    torch = module("torch")
    _named_operators(torch)
    transformers = module("transformers")
    torch.manual_seed(0)
    options, shape = TRANSFORMERS[name]
    configuration = getattr(transformers, f"{name}Config")(**options)
    configuration._attn_implementation = "eager"
    network = getattr(transformers, f"{name}Model")(configuration)
    tokens = len(shape) == 2 and name != "Wav2Vec2"
    given = torch.randint(0, 1000, shape) if tokens else torch.randn(shape)
    return of_torch(_FirstOf.of(torch, network), given)


class _FirstOf:
    """A module that gives the first of what another one gives: a tensor, not a record."""

    @staticmethod
    def of(torch: Any, network: Any) -> Any:
        class First(torch.nn.Module):  # type: ignore[misc]  # a class of an untyped package
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, given: Any) -> Any:
                return self.network(given)[0]

        return First()


_OCR, _VAD = "rapidocr_onnxruntime", "silero_vad"
_FILES: tuple[tuple[str, str, str, Mapping[str, int], Mapping[str, int]], ...] = (
    ("silero-vad", _VAD, "data/silero_vad_half.onnx",
     {"input[0]": 1, "input[1]": 576, "state[1]": 1}, {"sr": 16000}),
    ("silero-vad", _VAD, "data/silero_vad_16k_op15.onnx",
     {"input[0]": 1, "input[1]": 576, "state[1]": 1}, {"sr": 16000}),
    ("magika", "magika", "models/*/model.onnx", {"bytes[0]": 4}, {}),
    ("rapidocr-onnxruntime", _OCR, "models/*_cls_*.onnx",
     {"x[0]": 1, "x[2]": 48, "x[3]": 192}, {}),
    ("rapidocr-onnxruntime", _OCR, "models/*_det_*.onnx",
     {"x[0]": 1, "x[2]": 160, "x[3]": 160}, {}),
    ("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx",
     {"unk__749": 1}, {}),
    ("ddddocr", "ddddocr", "common_old.onnx", {"image_width": 128}, {}),
    ("nudenet", "nudenet", "320n.onnx", {"batch": 1, "height": 160, "width": 160}, {}),
)  # fmt: skip


def _file_name(package: str, pattern: str) -> str:
    return f"{package}:{pattern.rpartition('/')[2].strip('*_').removesuffix('.onnx').strip('*_')}"


PROGRAMS = (
    *(Program(f"timm:{name}", "network", "timm", ("torch", "timm"), partial(_timm, name, size),
              name in DRAWN)
      for name, size in TIMM),
    *(Program(f"transformers:{name}", "network", "transformers", ("torch", "transformers"),
              partial(_transformer, name), name in DRAWN) for name in TRANSFORMERS),
    *(Program(_file_name(folder, pattern), "onnx", package, ("onnx", folder),
              partial(of_onnx, folder, pattern, dims, values),
              pattern in DRAWN)
      for package, folder, pattern, dims, values in _FILES),
)  # fmt: skip
