"""The attribution methods need four packages; everything else is an extra, and its absence is one sentence."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import locality
from locality.errors import EXTRAS, needing

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(locality.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# captum brings matplotlib, which brings Pillow; all other packages of the extras cannot be imported.
CORE = {"torch", "captum", "numpy", "safetensors", "lazy_loader"}
BROUGHT_BY_CAPTUM = {"matplotlib", "PIL"}
HIDE = f"""
import sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {sorted(set(EXTRAS) - BROUGHT_BY_CAPTUM)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden)
"""
TOY = """
import torch
import locality
from locality import BIG, BSM, IG, SM

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
images = torch.rand(2, 3, 4, 4)
boundary = locality.find_boundary(model, images)
assert boundary.found.all()
for method in (SM, IG, BSM):
    assert method(model).attribute(images).shape == images.shape
maps = BIG(model).attribute(images, boundary=boundary)
# A linear model's BIG is (image - boundary point) * w_y.
weight = model[1].weight[model(images).argmax(1)].reshape(images.shape)
torch.testing.assert_close(maps, (images - boundary.points) * weight, atol=1e-5, rtol=1e-4)
assert locality.locality_scores(maps, torch.ones(2, 1, 4, 4, dtype=torch.bool)).precision.eq(1).all()
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", HIDE + code], capture_output=True, text=True, check=False)


def distribution(requirement: str) -> str:
    return re.split(r"[\[<>=~! ]", requirement)[0].lower().replace("_", "-")


def packages_of(extra: str) -> set[str]:
    """The distributions of an extra; those of other extras that it contains are not counted."""
    return {distribution(line) for line in PROJECT["optional-dependencies"][extra]} - {"locality"}


def test_the_methods_run_without_the_extras() -> None:
    done = run(TOY)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("locality.evaluate", "`evaluate` needs pandas, which is not installed: pip install 'locality[bench]'"),
        (
            "import torch; locality.find_boundary(torch.nn.Flatten(), torch.rand(1, 3, 2, 2), search='autopgd')",
            "`search` autopgd needs pyautoattack, which is not installed: pip install 'locality[bench]'",
        ),
    ],
)
def test_what_is_missing_is_one_sentence(code: str, sentence: str) -> None:
    done = run(f"import locality\n{code}")
    assert done.stderr.splitlines()[-1] == f"ImportError: {sentence}"


def test_the_command_says_what_it_needs() -> None:
    done = run("from locality.__main__ import main; main()")
    assert done.returncode == 1
    assert done.stderr == "locality: the command line needs typer, which is not installed: pip install 'locality[bench]'\n"


def test_other_missing_packages_are_not_put_down_to_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'nothing'"), needing("it"):
        raise ModuleNotFoundError("No module named 'nothing'", name="nothing")


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {module.partition(".")[0] for module in modules}


def test_every_import_is_of_the_core_or_of_an_extra() -> None:
    modules = set().union(*(imported(path) for path in PACKAGE.rglob("*.py"))) - set(sys.stdlib_module_names)
    outside = modules - {"locality"} - CORE
    assert outside <= set(EXTRAS), outside - set(EXTRAS)


def test_the_table_of_extras_is_that_of_the_project() -> None:
    names = importlib.metadata.packages_distributions()
    assert {distribution(line) for line in PROJECT["dependencies"]} == {name.replace("_", "-") for name in CORE}
    for module, extra in EXTRAS.items():
        assert packages_of(extra) & {distribution(name) for name in names.get(module, [module])}, (
            f"{module} is not in {extra}"
        )
    assert "pandas>=2.2" in PROJECT["optional-dependencies"]["bench"]


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        distribution(line) for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line
    }
    listed = {distribution(line) for lines in PROJECT["optional-dependencies"].values() for line in lines}
    assert listed | {distribution(line) for line in PROJECT["dependencies"]} <= pinned | {
        "locality",
        "robustbench",
    }  # not tested with
