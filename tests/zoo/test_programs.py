"""TorchScript and torch.export files: refused without a word of trust, and the same numbers as the network with it."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from locality.attribution import saliency_map
from locality.boundary import find_boundary
from locality.cli import app
from locality.errors import ArgumentError, NeedsCodeError
from locality.robustness.fingerprint import model_fingerprint
from locality.runner.no_code import without_code
from locality.runner.suite_file import draft_suite
from locality.zoo.load import load_model
from locality.zoo.programs import program_kind

Save = Callable[[nn.Module, Path], None]


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()


def as_script(net: nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(net, torch.rand(2, 3, 8, 8)), path)


def as_export(net: nn.Module, path: Path) -> None:
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(net, (torch.rand(2, 3, 8, 8),), dynamic_shapes=({0: batch},)), path)


def as_single_export(net: nn.Module, path: Path) -> None:
    torch.export.save(torch.export.export(net, (torch.rand(1, 3, 8, 8),)), path)


FORMS: dict[str, tuple[Save, str]] = {
    "script.pt": (as_script, "TorchScript"),
    "program.pt2": (as_export, "torch.export"),
    "single.pt2": (as_single_export, "torch.export"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_program_needs_trust_and_gives_the_networks_numbers(tmp_path: Path, name: str) -> None:
    net, path = network(), tmp_path / name
    FORMS[name][0](net, path)
    assert program_kind(path) == FORMS[name][1]
    with pytest.raises(NeedsCodeError, match=rf"is a {FORMS[name][1]} program, which can run code: pass trust_code=True"):
        load_model(path)
    model = load_model(path, trust_code=True, input_size=8)
    images = torch.rand(5, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(model(images), net(images))
    torch.testing.assert_close(saliency_map(model, images), saliency_map(net, images))
    torch.testing.assert_close(find_boundary(model, images).distance, find_boundary(net, images).distance, rtol=1e-3, atol=0)
    assert model_fingerprint(model) == model_fingerprint(load_model(path, trust_code=True, input_size=8))
    normalised = load_model(path, trust_code=True, input_size=8, mean=0.5, std=0.25)
    with torch.no_grad():
        torch.testing.assert_close(normalised(images), net((images - 0.5) / 0.25))
    with pytest.raises(ArgumentError, match="`arch` must be left out"):
        load_model(path, trust_code=True, arch="net:tiny_vit")


def test_an_exported_program_knows_its_size(tmp_path: Path) -> None:
    as_export(network(), tmp_path / "program.pt2")
    spec = load_model(tmp_path / "program.pt2", trust_code=True).spec
    assert (spec.input_size, spec.resize) == ((8, 8), 8)


def test_no_code_refuses_programs_in_suites(tmp_path: Path) -> None:
    as_script(network(), tmp_path / "script.pt")
    suite = tmp_path / "suite.toml"
    for line in (f'load = "{tmp_path}/script.pt"', 'load = "shapes_cnn"\ntrust_code = true'):
        suite.write_text(f'[[models]]\nname = "mine"\n{line}\n')
        problems = without_code(draft_suite(str(suite))).problems
        assert any("which --no-code refuses" in problem.text for problem in problems)


def test_weights_are_no_program(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pt")
    assert program_kind(tmp_path / "weights.pt") is None
    assert program_kind(tmp_path / "missing.pt") is None


def test_the_command_line_takes_the_word(tmp_path: Path) -> None:
    as_export(network(), tmp_path / "program.pt2")
    arguments = ["eval", "--model", str(tmp_path / "program.pt2"), "--data", "shapes", "--limit", "2", "--methods", "SM"]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, NeedsCodeError)
    trusted = CliRunner().invoke(app, [*arguments, "--trust-code"])
    assert trusted.exit_code == 0, trusted.output
    assert "crop 8×8" in trusted.output
