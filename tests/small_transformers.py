"""Transformers of several libraries, with two layers and random weights."""

from importlib import import_module
from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import nn


def timm_vit(**options: Any) -> nn.Module:
    sizes: Any = {"img_size": (32, 24), "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 4}
    net: nn.Module = VisionTransformer(**sizes, **options)
    return net


def hugging_face_vit() -> nn.Module:
    transformers: Any = import_module("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(**sizes, image_size=(32, 24), patch_size=8, num_labels=4, initializer_range=0.3)
    net: nn.Module = transformers.ViTForImageClassification(config)
    return net


def timm_swin() -> nn.Module:
    kind: Any = import_module("timm.models.swin_transformer").SwinTransformer
    sizes = {"patch_size": 4, "window_size": 4, "embed_dim": 8, "depths": (1, 1), "num_heads": (1, 2)}
    net: nn.Module = kind(img_size=64, num_classes=4, **sizes)
    return net
