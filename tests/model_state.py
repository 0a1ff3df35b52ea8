"""What a method must leave as it was: a model, the images, the random state."""

from typing import Any

import torch
from torch import Tensor, nn


def state(model: nn.Module, images: Tensor) -> dict[str, Any]:
    return {
        "parameters": {name: p.detach().clone() for name, p in model.state_dict().items()},
        "strides": {name: p.stride() for name, p in model.named_parameters()},
        "identity": {name: id(p) for name, p in model.named_parameters()},
        "gradients": {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None},
        "wanted": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": {name: part.training for name, part in model.named_modules()},
        "hooks": {
            name: (len(part._forward_hooks), len(part._forward_pre_hooks), len(part._backward_hooks))
            for name, part in model.named_modules()
        },
        "random": torch.get_rng_state(),
        "images": images.detach().clone(),
        "of images": (images.requires_grad, images.grad is None, images._version, images.stride()),
    }


def same(before: Any, after: Any) -> bool:
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    return torch.equal(before, after) if isinstance(before, Tensor) else bool(before == after)
