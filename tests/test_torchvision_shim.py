"""A torchvision without its compiled operators can be imported; a healthy one is left alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

# A package in place of torchvision that describes operators to torch as the real one does.
STAND_IN = """
import torch
{loaded}
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold): ...
@torch.library.register_fake("torchvision::qnms")
def qnms(dets, scores, iou_threshold): ...
"""
HEALTHY = """
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
SHIM = "from locality.torchvision_shim import _defined, import_torchvision\nimport_torchvision()\nimport_torchvision()\n"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(place) for place in path]}\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def stand_in(folder: Path, text: str) -> Path:
    (folder / "torchvision").mkdir()
    (folder / "torchvision/__init__.py").write_text(text)
    return folder


def test_missing_operators_are_defined(tmp_path: Path) -> None:
    place = stand_in(tmp_path, STAND_IN.format(loaded=""))
    broken = run("import torchvision", place)
    assert "operator torchvision::nms does not exist" in broken.stderr
    mended = run(f"{SHIM}import torchvision; print(len(_defined))", place)
    assert (mended.returncode, mended.stdout.strip()) == (0, "1"), mended.stderr


def test_a_healthy_torchvision_is_left_alone(tmp_path: Path) -> None:
    healthy = run(f"{SHIM}print(len(_defined))", stand_in(tmp_path, STAND_IN.format(loaded=HEALTHY)))
    assert (healthy.returncode, healthy.stdout.strip()) == (0, "0"), healthy.stderr


@pytest.mark.parametrize("error", ["RuntimeError('no memory')", "ImportError('no file')"])
def test_other_faults_are_not_hidden(tmp_path: Path, error: str) -> None:
    assert error.split("(")[0] in run(SHIM, stand_in(tmp_path, f"raise {error}")).stderr


def test_the_installed_torchvision_and_timm_work() -> None:
    code = "import timm, torchvision; print(torchvision.transforms.CenterCrop(2), len(timm.list_models('resnet50')))"
    done = run(f"{SHIM}{code}")
    assert (done.returncode, done.stdout.strip()) == (0, "CenterCrop(size=(2, 2)) 1"), done.stderr
    plain = run("import torchvision")
    if torch.version.cuda is None and plain.returncode:
        assert "operator torchvision::nms does not exist" in plain.stderr
