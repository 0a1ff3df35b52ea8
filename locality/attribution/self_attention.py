"""PyTorch's two attention functions, which hide their weights, as steps that a mode of PyTorch can see or replace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# (queries, keys, values, what is added to the scores, scale of the scores), N×heads×tokens×features ↦ new values
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]
MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)
PLAIN = {"bias_k": None, "bias_v": None, "add_zero_attn": False, "static_k": None, "static_v": None}


def scaled_dot_product(
    attend: Attend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` through `attend`; without dropout, as in eval mode."""
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        # Half of the lowest number, not −∞: a difference of two of them must be a number.
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, torch.finfo(query.dtype).min / 2)
    return attend(query, key, value, attn_mask, query.shape[-1] ** -0.5 if scale is None else scale)


def multi_head(attend: Attend, *args: Any, **options: Any) -> tuple[Tensor, None] | None:
    """`multi_head_attention_forward` through `attend`; None where it has masks, biases or keys of another kind.

    `torch.nn.MultiheadAttention` calls it with T×N×C tokens; torchvision's ViT does.
    """
    bound = MULTI_HEAD.bind(*args, **options)
    bound.apply_defaults()
    given = bound.arguments
    masked = given["key_padding_mask"] is not None or given["attn_mask"] is not None
    if given["query"].dim() != 3 or masked or any(given[name] is not expected for name, expected in PLAIN.items()):
        return None
    biases = (None,) * 3 if given["in_proj_bias"] is None else given["in_proj_bias"].chunk(3)
    separate = [given[f"{part}_proj_weight"] for part in "qkv"]
    weights = separate if given["use_separate_proj_weight"] else given["in_proj_weight"].chunk(3)
    heads = [
        functional.linear(given[name], weight, bias).unflatten(2, (given["num_heads"], -1)).permute(1, 2, 0, 3)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True)
    ]
    joined = scaled_dot_product(attend, *heads).permute(2, 0, 1, 3).flatten(2)
    return functional.linear(joined, given["out_proj_weight"], given["out_proj_bias"]), None
