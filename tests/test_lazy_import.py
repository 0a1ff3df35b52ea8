"""`import locality` and `locality --help` do not wait for torch."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import locality


@pytest.mark.parametrize(
    "code",
    [
        "import locality",
        "import locality; locality.Box, locality.DataError, locality.Threat, locality.ModelCard",
        "import locality.cli",
        "import sys; sys.argv = ['locality', 'data', '--help']\nimport locality.cli\n"
        "try: locality.cli.main()\nexcept SystemExit: pass",
    ],
)
def test_torch_stays_out(code: str) -> None:
    heavy = "{'torch', 'pandas', 'matplotlib', 'timm', 'numpy'} & set(sys.modules)"
    check = f"{code}\nimport sys; heavy = {heavy}\nassert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_captum_stays_out_of_a_dry_run() -> None:
    code = "import sys; sys.argv = ['locality', 'bench', 'demo', '--dry-run']\nimport locality.cli\n"
    code += "try: locality.cli.main()\nexcept SystemExit: pass\nassert not {'captum', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "shapes_cnn" in done.stdout


def test_every_public_name_is_where_the_stub_says() -> None:
    stub = ast.parse(Path(locality.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    listed = {alias.name: f"locality.{node.module}" for node in imports for alias in node.names}
    assert set(locality.__all__) == set(listed)
    assert set(dir(locality)) == set(listed)
    for name, module in listed.items():
        assert getattr(locality, name) is getattr(importlib.import_module(module), name)
    assert locality.Threat("linf", 4 / 255).radius_text == "4/255"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="No locality attribute nothing"):
        locality.nothing  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from locality import nothing")
