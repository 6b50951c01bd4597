"""Thirteen architectures of Hugging Face's transformers, tiny and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

Program = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
_WORDS, _LENGTH = 96, 16
_SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip
_SMALL = {
    **_SIZES, "vocab_size": _WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def _tokens(batch: int = 2) -> torch.Tensor:
    return torch.randint(3, _WORDS, (batch, _LENGTH))


def _model(kind: str, **more: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**more)
    name = {"T5": "T5Model"}.get(kind, f"{kind}Model")
    made: nn.Module = getattr(transformers, name)(config)
    return made


def plain(kind: str, **more: Any) -> Program:
    keep = {} if kind in ("Bert", "DebertaV2") else {"use_cache": False}
    return _model(kind, **{**_SMALL, **more}), (_tokens(),), keep


class Decoding(nn.Module):
    """A model that reads one token after a cache of fixed size, always at its last place."""

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, token: Any) -> Any:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(_LENGTH - 1)
        return self.model(token, past_key_values=self.cache, use_cache=True).last_hidden_state


def _llama_decode() -> Program:
    from transformers import StaticCache

    model = _model("Llama", **_SMALL, num_key_value_heads=2)
    cache = StaticCache(config=model.config, max_cache_len=_LENGTH)
    with torch.no_grad():
        model(_tokens(1)[:, :-1], past_key_values=cache, use_cache=True)
    return Decoding(model, cache), (_tokens(1)[:, :1],), {}


def _t5() -> Program:
    model = _model(
        "T5", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=_WORDS,
        decoder_start_token_id=0,
    )  # fmt: skip
    return model, (), {"input_ids": _tokens(), "decoder_input_ids": _tokens(), "use_cache": False}


def _image(kind: str, **more: Any) -> Program:
    return _model(kind, image_size=32, **more), (torch.rand(2, 3, 32, 32),), {}


def _swin() -> Program:
    return _image(
        "Swin", patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4
    )


def _whisper() -> Program:
    model = _model(
        "Whisper", d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=_WORDS,
        max_source_positions=32, max_target_positions=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, num_mel_bins=16,
    )  # fmt: skip
    inputs = {"input_features": torch.rand(2, 16, 64), "decoder_input_ids": _tokens()}
    return model, (), {**inputs, "use_cache": False}


def _clip() -> Program:
    small = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    model = _model(
        "CLIP",
        text_config={**_SMALL, "max_position_embeddings": 32},
        vision_config={**small, "image_size": 32, "patch_size": 8},
    )
    return model, (), {"input_ids": _tokens(), "pixel_values": torch.rand(2, 3, 32, 32)}


LANGUAGE: dict[str, Callable[[], Program]] = {
    "bert": partial(plain, "Bert"),
    "gpt2": partial(plain, "GPT2", n_embd=64, n_layer=2, n_head=4),
    "llama": partial(plain, "Llama", num_key_value_heads=2),
    "llama_decode": _llama_decode,
    "qwen2": partial(plain, "Qwen2", num_key_value_heads=2),
    "gemma2": partial(plain, "Gemma2", num_key_value_heads=2, head_dim=16),
    "t5": _t5,
    "vit": partial(_image, "ViT", patch_size=8, **_SIZES),
    "whisper": _whisper,
    "swin": _swin,
    "deberta": partial(plain, "DebertaV2", relative_attention=True, position_buckets=8,
                       pos_att_type=["p2c", "c2p"]),
    "mamba": partial(plain, "Mamba", state_size=8),
    "clip": _clip,
    "mixtral": partial(plain, "Mixtral", num_key_value_heads=2, num_local_experts=4),
}  # fmt: skip
