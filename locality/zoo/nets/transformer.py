"""Small vision transformers, built by timm."""

from __future__ import annotations

from torch import nn

from locality.torchvision_shim import import_torchvision


def shapes_vit(classes: int) -> nn.Module:
    """64 patches of 8×8, width 96, depth 4, for `shapes`: 0.5 million parameters."""
    return _vision_transformer(classes, width=96, depth=4, heads=3)


def tiny_vit(classes: int) -> nn.Module:
    """64 patches of 8×8, width 144, depth 5: 1.3 million parameters."""
    return _vision_transformer(classes, width=144, depth=5, heads=4)


def _vision_transformer(classes: int, width: int, depth: int, heads: int) -> nn.Module:
    import_torchvision()  # timm imports torchvision
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
    )
    return net
