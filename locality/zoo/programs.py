"""Files that hold a program and its weights: TorchScript and `torch.export`. Loading or running one can run code."""

from __future__ import annotations

import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from locality.errors import ModelError, NeedsCodeError
from locality.model_calls.outputs import logits_of
from locality.types import ModelSpec
from locality.zoo.architectures import IDENTITY
from locality.zoo.pixel_model import PixelModel
from locality.zoo.preprocessing import all_from

Kind = Literal["TorchScript", "torch.export"]


def program_kind(path: Path) -> Kind | None:
    """What kind of program the file is, from its list of entries; None if it is none. Nothing in it is read."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError):
        return None
    if "archive_format" in entries:
        return "torch.export"
    return "TorchScript" if any(name.startswith("code/") for name in entries) else None


def of_program(path: Path, kind: Kind, trust_code: bool) -> PixelModel:
    """The program as a model on pixels, which it normalises itself unless a mean and a standard deviation are given.

    TorchScript is a language with operators that read and write files, and `torch.export` unpickles constants, so neither
    is loaded without `trust_code`.
    """
    if not trust_code:
        raise NeedsCodeError(
            f"`{path}` is a {kind} program, which can run code: pass trust_code=True (--trust-code) if you trust its "
            "author, or a file of its weights with `arch`"
        )
    spec = replace(ModelSpec(path.stem), **IDENTITY)
    try:
        if kind == "TorchScript":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*torch.jit.load. is deprecated")
                return PixelModel(torch.jit.load(path, map_location="cpu"), spec, all_from("guessed for a TorchScript file"))
        net = Exported(path)
    except ModelError:
        raise
    except Exception as error:  # both raise errors of many kinds
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"`{path}` cannot be loaded as {kind} ({type(error).__name__}: {reason})") from error
    spec = replace(spec, input_size=net.input_size, resize=max(net.input_size))
    return PixelModel(net, spec, all_from("as the program was exported"))


class Exported(nn.Module):
    """An exported program. It has no training mode. One that was exported for single images gets them one by one."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        program = torch.export.load(path)
        inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
        shape: tuple[Any, ...] = tuple(inputs[0].meta["val"].shape) if len(inputs) == 1 else ()
        sides = [side for side in shape[1:] if isinstance(side, int)]
        if len(shape) != 4 or len(sides) != 3 or sides[0] != 3:
            raise ModelError(f"`{path}` must take one tensor of N×3×height×width with a fixed size, got {shape}")
        if isinstance(shape[0], int) and shape[0] != 1:
            raise ModelError(
                f"`{path}` takes exactly {shape[0]} images: export it with a dynamic batch size (torch.export.Dim)"
            )
        self.input_size = (sides[1], sides[2])
        self.single = isinstance(shape[0], int)
        self.program = program.module()

    def train(self, mode: bool = True) -> Exported:
        """Only remember the mode: the program is what it was when it was exported."""
        self.training = mode
        return self

    def forward(self, images: Tensor) -> Tensor:
        if self.single:
            return torch.cat([logits_of(self.program(image), 1) for image in images.split(1)])
        logits: Tensor = self.program(images)
        return logits
