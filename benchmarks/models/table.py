"""All networks, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from autofuse.peers.types import BenchError
from benchmarks.models import by_hand
from benchmarks.models.types import Built, Network

_WORDS = 1000  # tokens are drawn from the first of them


def _made(kind: str, config: str, **sizes: Any) -> nn.Module:
    """A class of transformers with random weights; what `sizes` leaves out is as published."""
    import transformers

    made: nn.Module = getattr(transformers, kind)(getattr(transformers, f"{config}Config")(**sizes))
    return made


def _tokens(batch: int, length: int) -> Tensor:
    return torch.randint(3, _WORDS, (batch, length))


def _image(kind: str, config: str, sizes: Mapping[str, Any], batch: int) -> Built:
    return Built(_made(kind, config, **sizes), (torch.randn(batch, 3, 224, 224),))


def _text(kind: str, config: str, sizes: Mapping[str, Any], length: int, batch: int) -> Built:
    return Built(_made(kind, config, **sizes), (_tokens(batch, length),))


class Step(nn.Module):
    """The next token of a decoder: it takes a token and the keys and values of those before it, a
    pair of tensors for each layer, [batch, heads, tokens, width of a head]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, *past: Tensor) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for at in range(len(past) // 2):
            cache.update(past[2 * at], past[2 * at + 1], at)
        return self.model(token, past_key_values=cache, use_cache=True).logits


def _step(kind: str, config: str, sizes: Mapping[str, Any], length: int, batch: int) -> Built:
    model: Any = _made(kind, config, **sizes)
    c = model.config
    heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    shape = (batch, heads, length, c.hidden_size // c.num_attention_heads)
    past = [torch.randn(shape) for _ in range(2 * c.num_hidden_layers)]
    return Built(Step(model), (_tokens(batch, 1), *past))


class Listening(nn.Module):
    """Whisper's decoder: the next of some tokens, given what the encoder made of the sound."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor, heard: Tensor) -> Any:
        found = self.decoder(input_ids=tokens, encoder_hidden_states=heard, use_cache=False)
        return found.last_hidden_state


_WHISPER = {
    "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536,
}  # fmt: skip
# Llama 3.2 1B with half of its layers: in f32, with copies of weights, all do not fit in 24 GB.
_LLAMA = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip


def _whisper_encoder(batch: int) -> Built:
    model: Any = _made("WhisperModel", "Whisper", **_WHISPER)
    return Built(model.encoder, (torch.randn(batch, 80, 3000),))


def _whisper_decoder(batch: int) -> Built:
    model: Any = _made("WhisperModel", "Whisper", **_WHISPER)
    return Built(Listening(model.decoder), (_tokens(batch, 16), torch.randn(batch, 1500, 384)))


_PREFILL = {"use_cache": False}
_VISION: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("resnet50", "ResNetForImageClassification", "ResNet", {}),
    ("mobilenet_v2", "MobileNetV2ForImageClassification", "MobileNetV2", {}),
    ("efficientnet_b0", "EfficientNetForImageClassification", "EfficientNet",
     {"width_coefficient": 1.0, "depth_coefficient": 1.0, "image_size": 224, "hidden_dim": 1280}),
    ("convnext_tiny", "ConvNextForImageClassification", "ConvNext", {}),
    ("vit_b16", "ViTForImageClassification", "ViT", {}),
    ("swin_tiny", "SwinForImageClassification", "Swin", {}),
)  # fmt: skip
_LANGUAGE: tuple[tuple[str, str, str, int, dict[str, Any]], ...] = (
    ("bert_128", "BertModel", "Bert", 128, {}),
    ("distilbert_384", "DistilBertModel", "DistilBert", 384, {}),
    ("gpt2_128", "GPT2LMHeadModel", "GPT2", 128, _PREFILL),
    ("t5_small_encoder", "T5EncoderModel", "T5", 128, {}),
    ("llama_half_64", "LlamaForCausalLM", "Llama", 64, {**_LLAMA, **_PREFILL}),
    ("mamba_64", "MambaModel", "Mamba", 64, {"num_hidden_layers": 4, **_PREFILL}),
)  # fmt: skip

NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        *(Network(name, "vision", f"transformers: {config}", partial(_image, kind, config, sizes))
          for name, kind, config, sizes in _VISION),
        Network("unet", "vision", "arXiv 1505.04597", by_hand.unet, ()),
        Network("detector", "vision", "after YOLOv8-n", by_hand.detector, ()),
        Network("diffusion_block", "vision", "arXiv 2112.10752", by_hand.diffusion, ()),
        *(Network(name, "language", f"transformers: {config}",
                  partial(_text, kind, config, sizes, length))
          for name, kind, config, length, sizes in _LANGUAGE),
        Network("gpt2_step_512", "language", "transformers: GPT2",
                partial(_step, "GPT2LMHeadModel", "GPT2", {}, 512)),
        Network("llama_half_step", "language", "transformers: Llama",
                partial(_step, "LlamaForCausalLM", "Llama", _LLAMA, 512)),
        Network("whisper_tiny_encoder", "speech", "transformers: Whisper", _whisper_encoder),
        Network("whisper_tiny_decoder", "speech", "transformers: Whisper", _whisper_decoder),
    )
}  # fmt: skip


def chosen(names: Sequence[str], networks: Mapping[str, Network] = NETWORKS) -> list[Network]:
    """The networks of these names; none named: all. Raises BenchError for a name without one."""
    for name in names:
        if name not in networks:
            raise BenchError(f"no network is called '{name}' (--list shows them)")
    return [networks[name] for name in names or networks]
