"""Small vision transformers, built by timm."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from locality.errors import ArgumentError
from locality.zoo.nets.convolutional import convolution

LARGEST = 4096  # width, depth and heads: a recipe with a slip of the pen would fill the memory


def shapes_vit(classes: int, *, width: int = 96, depth: int = 4, heads: int = 3) -> nn.Module:
    """64 tokens from convolutions, for `shapes`: 0.5 million parameters.

    With patches as tokens, a few thousand images teach it the planted cue but barely the shapes. Early convolutions are a
    known remedy (Xiao et al. 2021, Early Convolutions Help Transformers See Better).
    """
    return _vision_transformer(classes, width, depth, heads, embed_layer=ConvolutionalTokens)


def tiny_vit(classes: int, *, width: int = 144, depth: int = 5, heads: int = 4) -> nn.Module:
    """64 tokens from patches of 8×8: 1.3 million parameters."""
    return _vision_transformer(classes, width, depth, heads)


class ConvolutionalTokens(nn.Module):
    """Tokens from a few small convolutions that reduce the image eightfold, instead of one large convolution."""

    def __init__(self, img_size: int, patch_size: int, in_chans: int, embed_dim: int, **unused: Any) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            convolution(in_chans, 32, stride=2),
            convolution(32, 64, stride=2),
            convolution(64, 64),
            convolution(64, embed_dim, stride=2),
            nn.Conv2d(embed_dim, embed_dim, 1),
        )
        self.num_patches = (img_size // patch_size) ** 2

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.convolutions(images)
        return features.flatten(2).transpose(1, 2)


def _vision_transformer(classes: int, width: int, depth: int, heads: int, **options: Any) -> nn.Module:
    for name, number in {"width": width, "depth": depth, "heads": heads}.items():
        if not 1 <= number <= LARGEST:
            raise ArgumentError(name, f"a whole number from 1 to {LARGEST:,}", number)
    if width % heads:
        raise ArgumentError("width", f"a multiple of `heads` ({heads})", width)
    from timm.models.vision_transformer import VisionTransformer

    net: nn.Module = VisionTransformer(
        img_size=64,
        patch_size=8,
        num_classes=classes,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        global_pool="avg",
        class_token=False,
        **options,
    )
    return net
