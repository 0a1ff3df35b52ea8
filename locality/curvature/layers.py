"""Which weights count as layers, and whether a network is piecewise linear in each of them.

Then the second derivative of the logits by one layer's weights is 0 wherever it exists, and the layer's block of the
cross-entropy's Hessian equals its Gauss–Newton block: it is positive semi-definite and needs no second derivatives.
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Layer = nn.Linear | nn.Conv2d  # modules whose traces follow from their inputs and the gradients of their outputs

# Modules of torch.nn that are piecewise linear in eval mode.
PIECEWISE_LINEAR = (
    nn.Linear,
    nn.Conv2d,
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.Hardtanh,
    nn.Threshold,
    _BatchNorm,
    nn.MaxPool2d,
    nn.AdaptiveMaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.ZeroPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
    nn.PixelShuffle,
    nn.Upsample,
    nn.Dropout,
    nn.Dropout2d,
)
# The same for the steps of a pass, by the names of autograd's nodes without their numbers.
LINEAR_STEPS = re.compile(
    "AccumulateGrad|Add|Sub|Neg|Abs|Sum|Mean|Max|Amax|Maximum|Minimum|Clamp|ClampMin|ClampMax|Relu|LeakyRelu|PreluKernel|Hardtanh"
    "|Threshold|MaxPool2DWithIndices|AdaptiveMaxPool2D|AvgPool2D|AdaptiveAvgPool2D|NativeBatchNorm|CudnnBatchNorm|MiopenBatchNorm"
    "|ConstantPadNd|ReflectionPad2D|ReplicationPad2D|UpsampleNearest2D|UpsampleBilinear2D|PixelShuffle|Clone|ToCopy|Copy|Alias|View"
    "|ReshapeAlias|UnsafeView|AsStrided|T|Permute|Transpose|Expand|Squeeze|Unsqueeze|Cat|Stack|Select|Slice|Split|SplitWithSizes"
    "|Unbind|Index"
)
PRODUCTS = re.compile("Mul|Div|Mm|Bmm|Mv|Addmm|Baddbmm|Convolution|CudnnConvolution|MkldnnConvolution")


def weight_layers(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every weight of two or more dimensions, by its name; a weight that several modules share counts once.

    Biases and the weights of normalisation layers have one dimension and do not count.

    >>> list(weight_layers(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))))
    ['0.weight', '3.weight']
    """
    return {name: weight for name, weight in model.named_parameters() if weight.dim() >= 2 and weight.is_floating_point()}


def is_piecewise_linear(model: nn.Module) -> bool:
    """Whether the modules of a network make it piecewise linear in each layer's weights, in eval mode.

    Modules of torch.nn and modules with parameters must be of the types in PIECEWISE_LINEAR, and no two modules may share a
    weight. What other modules compute is seen in a pass only, by `nonlinear_step`.

    >>> is_piecewise_linear(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    True
    >>> is_piecewise_linear(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2)))
    False
    """
    return unsuitable_module(model) == ""


def unsuitable_module(model: nn.Module) -> str:
    """The first reason why a network is not piecewise linear in each layer's weights, as far as its modules say; or ""."""
    owners: set[int] = set()
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        of_torch = type(module).__module__.startswith("torch.nn.") and next(module.children(), None) is None
        if (own or of_torch) and not isinstance(module, PIECEWISE_LINEAR):
            return f"{type(module).__name__} ({name or 'the model itself'})"
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            return f"{type(module).__name__} ({name}) without running statistics"
        if owners & {id(weight) for weight in own}:
            return f"a weight of {name} that another module shares"
        owners |= {id(weight) for weight in own}
    return ""


def nonlinear_step(outputs: Tensor) -> str:
    """The first step of a pass that is not piecewise linear, as autograd names it; or "".

    The graph must hold activations only: weights and pixels do not require gradients. A product of two activations, such as
    attention or a gate, is not linear in either's weights.
    """
    seen: set[Any] = set()
    left: list[Any] = [outputs.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        inputs = [function for function, _ in node.next_functions]
        step = str(re.sub(r"Backward\w*$", "", node.name().rpartition("::")[2]))
        if PRODUCTS.fullmatch(step):
            if sum(function is not None for function in inputs) > 1 or (step == "Div" and inputs[0] is None):
                return f"{step} of two activations"
        elif not LINEAR_STEPS.fullmatch(step):
            return step
        left += inputs
    return ""
