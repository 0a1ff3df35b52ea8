"""`locality bench paper`: what it says without the weights, and that one command fetches those that cannot be verified."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted_server import Answer, running_server
from typer.testing import CliRunner, Result

from locality.cli import app
from locality.zoo import catalog
from locality.zoo.architectures import build
from locality.zoo.catalog import find_card
from locality.zoo.model_card import Address

SUITE = (
    'models = ["toy"]\nmethods = ["SM"]\nsearch = "none"\ndata = { name = "shapes", limit = 2, options = { count = 20 } }\n'
)


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("LOCALITY_IMAGENET", raising=False)


def bench(*words: object) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


STANDARD = ["squeezenet", "vgg16", "resnet50", "vit_b32", "vit_b16"]
ROBUST = ["vgg16_robust", "resnet50_robust", "vit_b32_robust", "vit_b16_robust"]


def problems(done: Result) -> list[str]:
    assert done.exit_code == 2
    first, *lines = [line for line in done.stderr.splitlines() if not line.startswith("opening models")]
    assert first == "locality: `paper` cannot run:"
    return lines


def test_the_dry_run_names_everything_that_is_missing_in_one_sentence(tmp_path: Path) -> None:
    weights, data = problems(bench("paper", "--dry-run", "--out", tmp_path / "out"))
    assert weights == (
        f"  - `models` need weights that are not on this machine ({', '.join(STANDARD + ROBUST)}): add --download "
        f"--trust-first-download (no sha256 of {', '.join(ROBUST)} is published), or get the files elsewhere and put them "
        "where `locality models show NAME` says"
    ), "the network with random weights needs nothing"
    assert (
        data
        == "  - `data` cannot be opened: `imagenet` is not on this machine: pass `imagenet:PATH`, or set LOCALITY_IMAGENET"
    )
    assert not (tmp_path / "out").exists()
    for name in STANDARD + ROBUST:
        wanted = find_card(name).weights
        assert isinstance(wanted, Address)
        shown = " ".join(CliRunner().invoke(app, ["models", "show", name]).stdout.split())
        assert f"source {wanted.url} stored at {tmp_path}" in shown
        assert f"{wanted.file} checksum" in shown


def test_a_single_model_has_a_sentence_of_its_own(tmp_path: Path) -> None:
    suite = tmp_path / "paper.toml"
    for name, way in (("vgg16", "` (or --download)"), ("vgg16_robust", " --trust-first-download`")):
        suite.write_text(SUITE.replace("toy", name))
        (line,) = problems(bench(suite, "--dry-run"))
        wanted = find_card(name).weights
        assert isinstance(wanted, Address)
        assert line.startswith(f"  - `{name}` cannot be loaded: `{name}` needs the file {wanted.file}, which is not on this")
        assert f"`locality models fetch {name}{way}, or get {wanted.url} elsewhere and put it at `{tmp_path}" in line


def test_one_command_fetches_weights_without_a_published_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = tmp_path / "toy.toml"
    suite.write_text(SUITE)
    buffer = io.BytesIO()
    torch.save(build("net:shapes_cnn", 10, seed=5).state_dict(), buffer)
    with running_server(monkeypatch) as server:
        server.answers = [Answer(body=buffer.getvalue())]
        card = find_card("shapes_cnn")
        toy = replace(card, spec=replace(card.spec, name="toy"), weights=Address(server.url, "toy.pth"))
        monkeypatch.setattr(catalog, "PUBLISHED", (toy,))
        refused = bench(suite, "--dry-run", "--processes", 0, "--download")
        assert refused.exit_code == 2
        assert "`toy` has no published sha256" in refused.stderr
        assert server.asked == []
        done = bench(suite, "--dry-run", "--processes", 0, "--download", "--trust-first-download")
        assert done.exit_code == 0, done.stderr
        assert len(server.asked) == 1
        assert bench(suite, "--dry-run", "--processes", 0).exit_code == 0, "it is here now"
        assert len(server.asked) == 1
