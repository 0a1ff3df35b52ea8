"""Lets torchvision be imported beside a torch it was not compiled for.

The CUDA build of torchvision beside the CPU build of torch cannot load its compiled operators. It goes on without them,
until it describes two of them to torch and fails: `operator torchvision::nms does not exist`. Models and transforms need
none of these operators, so it is enough that torch has heard of their names. Detection code that calls them still fails,
with torch's own message that they are not implemented.
"""

from __future__ import annotations

import importlib
import re
import sys

import torch

# The operators that torchvision describes without asking whether they were loaded.
SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
# torch forgets an operator when the library object that defined it is deleted.
_defined: list[torch.library.Library] = []


def import_torchvision() -> None:
    """Import torchvision, defining the operators it misses; a healthy torchvision is left alone. Call before timm."""
    while "torchvision" not in sys.modules:
        try:
            importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None or missing[1] not in SCHEMAS:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(SCHEMAS[missing[1]])
            _defined.append(library)
            # What was half imported would be taken for whole.
            for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
                del sys.modules[name]
