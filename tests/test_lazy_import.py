"""`import locality` and `locality --help` do not wait for torch."""

import importlib
import subprocess
import sys

import pytest

import locality


@pytest.mark.parametrize(
    "code",
    [
        "import locality",
        "import locality; locality.Box, locality.DataError",
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


def test_every_public_name_is_where_it_is_said_to_be() -> None:
    for name in locality.__all__:
        assert getattr(locality, name) is not None
    assert set(locality.__all__) <= set(dir(locality))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        locality.nothing  # noqa: B018


def test_the_names_for_type_checkers_are_the_same() -> None:
    source = importlib.util.find_spec("locality").origin  # type: ignore[union-attr]
    with open(str(source), encoding="utf-8") as file:
        text = file.read()
    for name, home in locality._HOMES.items():
        assert f"from {home} import {name} as {name}\n" in text
