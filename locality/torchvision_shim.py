"""Import torchvision together with a torch that it was not compiled for.

A CUDA build of torchvision cannot load its compiled operators into a CPU build of torch. It continues without them, until it
registers metadata for two of them and fails: `operator torchvision::nms does not exist`. Models and transforms use none of
these operators, so it is enough to declare them to torch. Detection code that calls them still fails, with torch's message
that they are not implemented.
"""

from __future__ import annotations

import importlib
import sys

import torch

# The operators that torchvision registers metadata for, loaded or not.
SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
# torch removes an operator when the library object that declared it is deleted.
_defined: list[torch.library.Library] = []


def import_torchvision() -> None:
    """Import torchvision, declaring its operators if they are missing. Call this before importing timm."""
    if "torchvision" in sys.modules:
        return
    try:
        importlib.import_module("torchvision")
        return
    except RuntimeError:
        missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
        if not missing:
            raise
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(SCHEMAS[name])
    _defined.append(library)
    # Modules that were imported in part would be taken for complete.
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    importlib.import_module("torchvision")
