"""The Hessian trace of the last linear layer of any classifier, whose features are seen by a hook."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from locality.curvature.closed_forms import trace_cross_entropy
from locality.model_calls import open_model
from locality.zoo.nets.forward_pass import ForwardPass


def top_layer_traces(model: nn.Module, images: Tensor, chunk: int | None = None) -> Tensor | None:
    """N float64: ‖z‖² (1 − ‖p‖²), the trace of each image's cross-entropy by the weights of the last linear layer.

    The last linear layer is the one whose output is the logits, as `nn.Linear` gives them. None if there is none, such as
    in networks that end with a convolution and a pool. Its bias is not counted.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    >>> _ = nn.init.zeros_(net[1].weight), nn.init.zeros_(net[1].bias)
    >>> top_layer_traces(net, torch.ones(1, 3, 1, 1)).tolist()  # 3 · 1/2
    [1.5]
    """
    latest: list[tuple[Tensor, Tensor]] = []  # inputs and outputs of linear layers in the current pass

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        latest.append((inputs[0].detach(), output.detach().clone()))

    handles = [part.register_forward_hook(hook) for part in model.modules() if isinstance(part, nn.Linear)]
    try:
        with open_model(model, images, chunk) as calls:

            def of_chunk(pixels: Tensor) -> tuple[Tensor]:
                latest.clear()
                logits = calls.logits(pixels)
                features = [inputs for inputs, output in latest if torch.equal(output.to(logits), logits)]
                if not features:
                    return (torch.full((len(pixels),), torch.nan, dtype=torch.float64),)
                return (trace_cross_entropy(ForwardPass(features[-1], logits)).double(),)

            (traces,) = calls.in_chunks(of_chunk, images)
    finally:
        for handle in handles:
            handle.remove()
    return None if traces.isnan().any() else traces.cpu()
