"""Make `import torchvision` work together with a torch that it was not compiled for.

A CUDA build of torchvision cannot load its compiled operators into a CPU build of torch. It continues without them, until it
registers metadata for two of them and fails: `operator torchvision::nms does not exist`. Models and transforms use none of
these operators, so it is enough to declare them to torch. Detection code that calls them still fails, with torch's message
that they are not implemented.

`import locality` installs an import hook, so that torchvision, timm and unpickled networks can be imported anywhere. It
imports nothing until torchvision is imported itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own would be the slowest import of `import locality`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

# The operators that torchvision registers metadata for, loaded or not.
SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
REGISTERS = "torchvision._meta_registrations"  # imported after torchvision has tried to load its operators
# torch removes an operator when the library object that declared it is deleted.
_declared: list[Any] = []


class DeclareOperators:
    """A finder that finds nothing: it declares missing operators just before torchvision describes them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == REGISTERS:
            declare_missing()


def install() -> None:
    """Put the hook in front of Python's own finders, once."""
    if DeclareOperators not in sys.meta_path:
        sys.meta_path.insert(0, DeclareOperators)


def declare_missing() -> None:
    """Declare the operators that torchvision could not load."""
    import torch

    missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(SCHEMAS[name])
    _declared.append(library)
