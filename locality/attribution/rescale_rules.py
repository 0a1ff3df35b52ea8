"""DeepLIFT's rules as a mode of PyTorch: gradients become multipliers, in any network, without hooks on its modules.

Captum hooks modules. It overlooks functional activations, loses a part of the change where a non-linear module directly
follows another one, and refuses modules used twice, as in torchvision ResNets. A mode sees the functions themselves.
The network runs once on the references, where the inputs of all non-linear functions are kept, and once on the images,
where each of them gets a gradient g with g · (a − a₀) = f(a) − f(a₀):

- an element-wise function: (f(a) − f(a₀))/(a − a₀), the rescale rule (Shrikumar et al. 2017, section 3.5.1);
- a product of two activations: the mean of the other factor over the two runs. Paper and Captum have no rule for it;
- max pooling: the change goes to the pixel of the larger maximum of the two runs (as in Captum);
- normalisation over features, softmax and attention: composed of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from locality.attribution.self_attention import multi_head, scaled_dot_product
from locality.errors import ArgumentError

Function = Callable[..., Any]
KINKED = "relu relu6 hardtanh leaky_relu prelu threshold abs clamp clip clamp_min clamp_max"  # the quotient is exact
SMOOTH = (
    "elu selu celu gelu silu mish hardswish hardsigmoid softplus softsign tanh sigmoid logsigmoid tanhshrink exp expm1 log "
    "log1p sqrt rsqrt reciprocal square pow erf sin cos __pow__ __rdiv__ __rtruediv__"
)
PRODUCTS: dict[str, Function] = {
    "mul": torch.mul,
    "multiply": torch.mul,
    "__mul__": torch.mul,
    "__rmul__": torch.mul,
    "__imul__": torch.mul,
}
PRODUCTS |= dict.fromkeys(("matmul", "bmm", "__matmul__"), torch.matmul)
QUOTIENTS = "div divide true_divide __truediv__ __itruediv__"
MAX_POOLS: dict[str, Any] = {"max_pool2d": functional.max_pool2d, "adaptive_max_pool2d": functional.adaptive_max_pool2d}
NO_RULE = "instance_norm local_response_norm log_softmax softmin glu max_pool1d max_pool3d"


class RescaleRules(TorchFunctionMode):
    """Inside `reading()` the network runs on references, inside `multiplying()` on images; gradients are multipliers."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []
        self._position: int | None = None  # in the second run, of the next kept input

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._kept, self._position = [], None
        with self, torch.no_grad():
            yield

    @contextmanager
    def multiplying(self) -> Iterator[None]:
        self._position = 0
        with self:
            yield

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """PyTorch calls this instead of each of its functions."""
        rule = RULES.get(func)
        return func(*args, **(kwargs or {})) if rule is None else rule(self, func, *args, **(kwargs or {}))

    def reference(self, value: Tensor) -> Tensor:
        """What this input was in the first run; there, the input itself."""
        if self._position is None:
            # A copy, because the network may overwrite it. A batch in the second run has the same size.
            self._kept.append(value.detach().clone())
            return value
        if self._position >= len(self._kept) or self._kept[self._position].shape != value.shape:
            raise no_rule("a network that calls other functions for the image than for the reference")
        self._position += 1
        return self._kept[self._position - 1]

    def elementwise(self, func: Function, value: Tensor, *rest: Any, kinked: bool = False, **options: Any) -> Tensor:
        before = self.reference(value).detach()
        after = value.detach().clone()
        with torch.no_grad():
            change = after - before
            result = func(after, *rest, **options)
        in_place = result.data_ptr() == after.data_ptr()
        if self._position is not None:
            with torch.no_grad():
                quotient = (result - func(before.clone(), *rest, **options)) / change
            # Where the change is small the quotient is all rounding: the slope half way has an error of order change².
            limit = 0.0 if kinked else torch.finfo(value.dtype).eps ** (1 / 3)
            middle = (before + change / 2).requires_grad_()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(func(middle.clone(), *rest, **options).sum(), middle)
            multiplier = torch.where(change.abs() > limit * value.detach().abs().clamp_min(1), quotient, slope)
            result = _with_gradient_of(multiplier * value, result)
        return value.copy_(result) if in_place else result

    def product(self, func: Function, left: Tensor, right: Tensor) -> Tensor:
        means = [(value.detach() + self.reference(value)) / 2 for value in (left, right)]
        result: Tensor = func(left, right)
        if self._position is None:
            return result
        return _with_gradient_of(func(left, means[1]) + func(means[0], right), result)

    def max_pool(self, pool: Function, value: Tensor, *rest: Any, **options: Any) -> Tensor:
        before = self.reference(value)
        result, at = pool(value.detach(), *rest, **options, return_indices=True)
        if self._position is None:
            kept: Tensor = result
            return kept
        result_before, at_before = pool(before, *rest, **options, return_indices=True)
        at = torch.where(result >= result_before, at, at_before).flatten(2)
        change = (value.detach() - before).flatten(2).gather(2, at).view_as(result)
        multiplier = torch.where(change == 0, 1.0, (result - result_before) / change)
        return _with_gradient_of(multiplier * value.flatten(2).gather(2, at).view_as(result), result)

    def softmax(self, value: Tensor, dim: int) -> Tensor:
        shift = self.reference(value.detach().amax(dim, keepdim=True))  # the same in both runs: any constant will do
        powers = self.elementwise(torch.exp, value - shift)
        return self.product(torch.mul, powers, self.elementwise(torch.reciprocal, powers.sum(dim, keepdim=True)))

    def normalised(self, value: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
        centred = value - value.mean(axes, keepdim=True)
        variance = self.product(torch.mul, centred, centred).mean(axes, keepdim=True)
        return self.product(torch.mul, centred, self.elementwise(torch.rsqrt, variance + eps))

    def attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        scores = self.product(torch.matmul, query * scale, key.transpose(-2, -1))
        scores = scores if mask is None else scores + mask
        return self.product(torch.matmul, self.softmax(scores, -1), value)


class _ValueAndGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def _with_gradient_of(surrogate: Tensor, value: Tensor) -> Tensor:
    """The value, through which gradients flow as through the surrogate."""
    result: Tensor = _ValueAndGradient.apply(surrogate, value.detach())  # type: ignore[no-untyped-call]
    return result


def no_rule(what: str) -> ArgumentError:
    """The error for a network that DeepLIFT cannot explain."""
    expected = "a network of layers for which DeepLIFT has a rule: linear, element-wise, products, max pooling, attention"
    return ArgumentError("model", expected, what, "use BIG or IG, which need no rules")


def _places(names: str) -> dict[Function, str]:
    """PyTorch's functions of these names, also those in place, wherever they are ↦ their name."""
    found = {}
    for name in names.split():
        for place in (torch, Tensor, functional):
            for variant in (name, f"{name}_"):
                if callable(function := getattr(place, variant, None)):
                    found[function] = name
    return found


def _elementwise(kinked: bool) -> Function:
    def rule(rules: RescaleRules, func: Function, *args: Any, **options: Any) -> Any:
        value, *rest = args if args else (options.pop("input"),)
        if any(isinstance(other, Tensor) and other.numel() > 1 for other in rest) and NAMES[func] != "prelu":
            raise no_rule(f"'{NAMES[func].strip('_')}' of several tensors")
        return rules.elementwise(func, value, *rest, kinked=kinked, **options)

    return rule


def _product(rules: RescaleRules, func: Function, *args: Any, **options: Any) -> Any:
    left, right = args if len(args) == 2 else (args[0], options.pop("other", None))
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return func(*args, **options)
    kind = torch.promote_types(left.dtype, right.dtype)
    if NAMES[func] in PRODUCTS:
        result = rules.product(PRODUCTS[NAMES[func]], left.to(kind), right.to(kind))
    else:
        result = rules.product(torch.mul, left.to(kind), rules.elementwise(torch.reciprocal, right.to(kind)))
    return left.copy_(result) if func in IN_PLACE else result


def _max_pool(rules: RescaleRules, func: Function, value: Tensor, *rest: Any, **options: Any) -> Tensor:
    options.pop("return_indices", None)
    return rules.max_pool(MAX_POOLS[NAMES[func]], value, *rest, **options)


def _softmax(rules: RescaleRules, func: Function, input: Tensor, dim: int = -1, *_: Any, **__: Any) -> Tensor:
    return rules.softmax(input, dim)


def _layer_norm(
    rules: RescaleRules,
    func: Function,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    normalised = rules.normalised(input, tuple(range(-len(normalized_shape), 0)), eps)
    normalised = normalised if weight is None else normalised * weight
    return normalised if bias is None else normalised + bias


def _group_norm(
    rules: RescaleRules,
    func: Function,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    normalised = rules.normalised(input.unflatten(1, (num_groups, -1)).flatten(2), (2,), eps).view_as(input)
    each = (-1, *(1,) * (input.dim() - 2))
    normalised = normalised if weight is None else normalised * weight.view(each)
    return normalised if bias is None else normalised + bias.view(each)


def _attention(rules: RescaleRules, func: Function, *args: Any, **options: Any) -> Tensor:
    return scaled_dot_product(rules.attention, *args, **options)


def _multi_head(rules: RescaleRules, func: Function, *args: Any, **options: Any) -> tuple[Tensor, None]:
    result = multi_head(rules.attention, *args, **options)
    if result is None:
        raise no_rule("attention with masks or extra keys")
    return result


def _refused(rules: RescaleRules, func: Function, *args: Any, **options: Any) -> Any:
    raise no_rule(NAMES[func])


RULES: dict[Function, Function] = {
    **dict.fromkeys(_places(KINKED), _elementwise(True)),
    **dict.fromkeys(_places(SMOOTH), _elementwise(False)),
    **dict.fromkeys(_places(" ".join(PRODUCTS)), _product),
    **dict.fromkeys(_places(QUOTIENTS), _product),
    **dict.fromkeys(_places(" ".join(MAX_POOLS)), _max_pool),
    **dict.fromkeys(_places("softmax"), _softmax),
    **dict.fromkeys(_places(NO_RULE), _refused),
    functional.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    functional.group_norm: _group_norm,
    torch.group_norm: _group_norm,
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head,
}
NAMES = _places(" ".join((KINKED, SMOOTH, *PRODUCTS, QUOTIENTS, *MAX_POOLS, NO_RULE)))
IN_PLACE = {function for function in NAMES if function.__name__ in ("mul_", "multiply_", "div_", "divide_", "__imul__")}
IN_PLACE |= {function for function in NAMES if function.__name__ in ("true_divide_", "__itruediv__", "__idiv__")}
