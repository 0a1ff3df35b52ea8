"""A torchvision without its compiled operators can be imported; a healthy one is left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

# A package in place of torchvision that describes operators to torch as the real one does.
FILES = {
    "__init__.py": "{start}\nfrom torchvision import _meta_registrations",
    "_meta_registrations.py": """
import torch
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold): ...
@torch.library.register_fake("torchvision::qnms")
def qnms(dets, scores, iou_threshold): ...
""",
}
HEALTHY = """
import torch
library = torch.library.Library("torchvision", "DEF")
library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
DECLARED = "import locality, torchvision; from locality.torchvision_shim import _declared; print(len(_declared))"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[str(place) for place in path]}\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def stand_in(folder: Path, start: str) -> Path:
    (folder / "torchvision").mkdir()
    for name, text in FILES.items():
        (folder / "torchvision" / name).write_text(text.format(start=start))
    return folder


def test_missing_operators_are_declared(tmp_path: Path) -> None:
    place = stand_in(tmp_path, "")
    broken = run("import torchvision", place)
    assert "operator torchvision::nms does not exist" in broken.stderr
    mended = run(DECLARED, place)
    assert (mended.returncode, mended.stdout.strip()) == (0, "1"), mended.stderr


def test_a_failed_import_before_locality_can_be_repeated(tmp_path: Path) -> None:
    code = "try: import torchvision\nexcept RuntimeError: print('failed')\nimport locality, torchvision"
    mended = run(code, stand_in(tmp_path, ""))
    assert (mended.returncode, mended.stdout.strip()) == (0, "failed"), mended.stderr


def test_a_healthy_torchvision_is_left_alone(tmp_path: Path) -> None:
    healthy = run(DECLARED, stand_in(tmp_path, HEALTHY))
    assert (healthy.returncode, healthy.stdout.strip()) == (0, "0"), healthy.stderr


@pytest.mark.parametrize("error", ["RuntimeError('no memory')", "ImportError('no file')"])
def test_other_faults_are_not_hidden(tmp_path: Path, error: str) -> None:
    assert error.split("(")[0] in run("import locality, torchvision", stand_in(tmp_path, f"raise {error}")).stderr


def test_the_hook_is_installed_once_and_imports_nothing() -> None:
    code = (
        "import locality, importlib, sys; importlib.reload(locality); import json.tool\n"
        "hooks = [one for one in sys.meta_path if 'locality' in repr(one)]; print(len(hooks), 'torch' in sys.modules)"
    )
    assert run(code).stdout.strip() == "1 False"


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_the_installed_packages_can_be_imported(package: str) -> None:
    done = run(f"import locality, {package}; print({package}.__name__)")
    assert (done.returncode, done.stdout.strip()) == (0, package), done.stderr


def test_networks_of_torchvision_are_functions_and_pickles(tmp_path: Path) -> None:
    code = (
        "import torch, locality; from pathlib import Path; from locality.zoo.convert import convert\n"
        "model = locality.load_model('torchvision.models:resnet18'); print(len(model.spec.classes))\n"
        f"torch.save(model.net, {str(tmp_path / 'whole.pt')!r})"
    )
    saved = run(code)
    assert (saved.returncode, saved.stdout.strip()) == (0, "1000"), saved.stderr
    command = [sys.executable, "-m", "locality", "models", "convert", str(tmp_path / "whole.pt"), "--trust-pickle"]
    converted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert converted.returncode == 0, converted.stderr
    assert (tmp_path / "whole.pt.safetensors").is_file()
