"""Names and shapes of published weight files, written down from the papers' architectures, not read from the libraries.

The libraries rename tensors now and then (torchvision's ViT, timm's Swin); the files do not change.
"""

from __future__ import annotations

Shapes = dict[str, tuple[int, ...]]
SQUEEZE = ((96, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192), (384, 48, 192), (384, 64, 256))
VGG_CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
VGG_WIDTHS = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)


def layer(name: str, *shape: int, bias: bool = True) -> Shapes:
    """A convolution, a linear layer, or a layer normalisation."""
    return {f"{name}.weight": shape} | ({f"{name}.bias": shape[:1]} if bias else {})


def batch_norm(name: str, width: int) -> Shapes:
    statistics: Shapes = {f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")}
    return statistics | {f"{name}.num_batches_tracked": ()}


def squeezenet() -> Shapes:
    shapes = layer("features.0", 96, 3, 7, 7)
    for place, (inside, squeeze, expand) in zip((3, 4, 5, 7, 8, 9, 10, 12), (*SQUEEZE, (512, 64, 256)), strict=True):
        shapes |= layer(f"features.{place}.squeeze", squeeze, inside, 1, 1)
        shapes |= layer(f"features.{place}.expand1x1", expand, squeeze, 1, 1)
        shapes |= layer(f"features.{place}.expand3x3", expand, squeeze, 3, 3)
    return shapes | layer("classifier.1", 1000, 512, 1, 1)


def vgg16(*heads: Shapes) -> Shapes:
    shapes: Shapes = {}
    for place, inside, width in zip(VGG_CONVOLUTIONS, VGG_WIDTHS, VGG_WIDTHS[1:], strict=False):
        shapes |= layer(f"features.{place}", width, inside, 3, 3)
    for head in heads:
        shapes |= head
    return shapes


def torchvision_vgg16() -> Shapes:
    first, second = layer("classifier.0", 4096, 25088), layer("classifier.3", 4096, 4096)
    return vgg16(first, second, layer("classifier.6", 1000, 4096))


def timm_vgg16() -> Shapes:
    first, second = layer("pre_logits.fc1", 4096, 512, 7, 7), layer("pre_logits.fc2", 4096, 4096, 1, 1)
    return vgg16(first, second, layer("head.fc", 1000, 4096))


def resnet(blocks: tuple[int, ...], stem: int, shortcut: str, head: str, classes: int) -> Shapes:
    """Bottleneck blocks; `stem` is the size of the first kernel."""
    shapes = layer("conv1", 64, 3, stem, stem, bias=False) | batch_norm("bn1", 64)
    inside = 64
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for number in range(count):
            name = f"layer{stage + 1}.{number}"
            for place, kernel in (
                (1, (width, inside, 1, 1)),
                (2, (width, width, 3, 3)),
                (3, (4 * width, width, 1, 1)),
            ):
                shapes |= layer(f"{name}.conv{place}", *kernel, bias=False) | batch_norm(f"{name}.bn{place}", kernel[0])
            if number == 0:
                shapes |= layer(f"{name}.{shortcut}.0", 4 * width, inside, 1, 1, bias=False)
                shapes |= batch_norm(f"{name}.{shortcut}.1", 4 * width)
            inside = 4 * width
    return shapes | layer(head, classes, inside)


def resnet50() -> Shapes:
    return resnet((3, 4, 6, 3), 7, "downsample", "fc", 1000)


def resnet101() -> Shapes:
    return resnet((3, 4, 23, 3), 7, "downsample", "fc", 1000)


def cifar_resnet50() -> Shapes:
    """As in MadryLab's `robustness.cifar_models`."""
    return resnet((3, 4, 6, 3), 3, "shortcut", "linear", 10)


def torchvision_vit(patch: int) -> Shapes:
    """The names of 2021, before torchvision's MLPBlock became an MLP (pytorch/vision#6053)."""
    tokens = (224 // patch) ** 2 + 1
    shapes: Shapes = {"class_token": (1, 1, 768), "encoder.pos_embedding": (1, tokens, 768)}
    shapes |= layer("conv_proj", 768, 3, patch, patch)
    for number in range(12):
        name = f"encoder.layers.encoder_layer_{number}"
        shapes |= layer(f"{name}.ln_1", 768) | layer(f"{name}.ln_2", 768)
        shapes |= {
            f"{name}.self_attention.in_proj_weight": (2304, 768),
            f"{name}.self_attention.in_proj_bias": (2304,),
        }
        shapes |= layer(f"{name}.self_attention.out_proj", 768, 768)
        shapes |= layer(f"{name}.mlp.linear_1", 3072, 768) | layer(f"{name}.mlp.linear_2", 768, 3072)
    return shapes | layer("encoder.ln", 768) | layer("heads.head", 1000, 768)


def timm_vit(patch: int, width: int) -> Shapes:
    tokens = (224 // patch) ** 2 + 1
    shapes: Shapes = {"cls_token": (1, 1, width), "pos_embed": (1, tokens, width)}
    shapes |= layer("patch_embed.proj", width, 3, patch, patch)
    for number in range(12):
        shapes |= timm_block(f"blocks.{number}", width)
    return shapes | layer("norm", width) | layer("head", 1000, width)


def timm_block(name: str, width: int) -> Shapes:
    shapes = layer(f"{name}.norm1", width) | layer(f"{name}.attn.qkv", 3 * width, width)
    shapes |= layer(f"{name}.attn.proj", width, width) | layer(f"{name}.norm2", width)
    return shapes | layer(f"{name}.mlp.fc1", 4 * width, width) | layer(f"{name}.mlp.fc2", width, 4 * width)


def timm_swin_base() -> Shapes:
    """The names before timm 0.9: reductions at the end of their stages, a head without `fc`. The buffers are left out."""
    shapes = layer("patch_embed.proj", 128, 3, 4, 4) | layer("patch_embed.norm", 128)
    for stage, (depth, heads) in enumerate(((2, 4), (2, 8), (18, 16), (2, 32))):
        width = 128 * 2**stage
        for number in range(depth):
            name = f"layers.{stage}.blocks.{number}"
            shapes |= timm_block(name, width) | {f"{name}.attn.relative_position_bias_table": (169, heads)}
        if stage < 3:
            shapes |= layer(f"layers.{stage}.downsample.reduction", 2 * width, 4 * width, bias=False)
            shapes |= layer(f"layers.{stage}.downsample.norm", 4 * width)
    return shapes | layer("norm", 1024) | layer("head", 1000, 1024)


def timm_densenet121() -> Shapes:
    shapes = layer("features.conv0", 64, 3, 7, 7, bias=False) | batch_norm("features.norm0", 64)
    width = 64
    for stage, count in enumerate((6, 12, 24, 16), 1):
        for number in range(count):
            name, inside = f"features.denseblock{stage}.denselayer{number + 1}", width + 32 * number
            shapes |= batch_norm(f"{name}.norm1", inside) | layer(f"{name}.conv1", 128, inside, 1, 1, bias=False)
            shapes |= batch_norm(f"{name}.norm2", 128) | layer(f"{name}.conv2", 32, 128, 3, 3, bias=False)
        width += 32 * count
        if stage < 4:
            name = f"features.transition{stage}"
            shapes |= batch_norm(f"{name}.norm", width) | layer(f"{name}.conv", width // 2, width, 1, 1, bias=False)
            width //= 2
    return shapes | batch_norm("features.norm5", width) | layer("classifier", 1000, width)
