"""`locality models` as a person types it; in a process of its own where it must not import torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted_server import Answer, running_server
from torch import nn

from locality.cli import main
from locality.types import ModelSpec
from locality.zoo import catalog
from locality.zoo.architectures import build
from locality.zoo.catalog import CIFAR10, PUBLISHED, shipped_cards
from locality.zoo.model_card import Address

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def locality(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process: its exit code, standard output and standard error."""
    monkeypatch.setenv("LOCALITY_CACHE", str(tmp_path / "cache"))

    def run(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["locality", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capfd.readouterr()

    return run


def test_the_table_names_every_model_and_where_it_is(locality: Run, tmp_path: Path) -> None:
    (tmp_path / "cache/models").mkdir(parents=True)
    (tmp_path / "cache/models/vgg16-397923af.pth").write_bytes(b"here")
    code, out, err = locality("models")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line.strip()}
    assert {entry.name for entry in PUBLISHED} <= rows.keys()
    assert rows["vit_b16_robust"] == ("vit_b16_robust imagenet AT ℓ∞ 4/255 70.64 43.04 ℓ∞ 4/255 autoattack 86.6 M to fetch")
    assert rows["vgg16"].endswith(" cached")
    assert rows["efficientnet_lite0"].endswith(" installed")
    assert rows["resnet50_random"] == "resnet50_random imagenet random 25.6 M random"


def test_show_prints_the_card(locality: Run, tmp_path: Path) -> None:
    code, out, err = locality("models", "show", "resnet50_l2_3")
    assert (code, err) == (0, "")
    for line in (
        "architecture   torchvision:resnet50, 25,557,032 parameters",
        "weights        to fetch",
        "source         https://www.dropbox.com/s/knf4uimlqsi1yz8/imagenet_l2_3_0.pt?dl=1",
        f"stored at      {tmp_path / 'cache/models/imagenet_l2_3_0.pt'}",
        "training       AT ℓ2 3",
        "robust         35.09 % under ℓ2 3 pgd100",
        "images         bilinear resize to 256, crop of 224×224",
        "licence        MIT",
        "note           pickled with dill: after fetching, `locality models convert resnet50_l2_3 --trust-pickle`",
    ):
        assert line in out.splitlines()


@pytest.mark.parametrize("name", sorted(shipped_cards())[:1])
def test_show_prints_how_a_shipped_model_was_trained(locality: Run, name: str) -> None:
    _, out, _ = locality("models", "show", name)
    card = shipped_cards()[name]
    assert card.run is not None
    for line in (
        "weights        shipped",
        f"data hash      {card.run.data_hash}",
        f"accuracy clean {100 * card.accuracy['clean']:.2f} %",
    ):
        assert line in out.splitlines()


def test_table_and_card_do_not_wait_for_torch() -> None:
    for words in (["models"], ["models", "show", "vgg16"], ["models", "fetch", "--help"]):
        code = (
            f"import sys; sys.argv = ['locality', *{words!r}]\nimport locality.cli\n"
            "try: locality.cli.main()\nexcept SystemExit as end: assert not end.code\n"
            "assert not {'torch', 'timm', 'numpy'} & set(sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_mistakes_are_one_sentence_and_exit_code_2(locality: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"PK\3\4 not much")
    mistakes: list[tuple[list[object], str]] = [
        (["show", "vgg61"], "`vgg61` is not a model: did you mean 'vgg16'?"),
        (["fetch", "resnet50_randm"], "did you mean 'resnet50_random'?"),
        (["convert", broken], "is truncated or damaged"),
        (["convert", "resnet50_l2_3"], f"`{tmp_path / 'cache/models/imagenet_l2_3_0.pt'}` is not a file"),
    ]
    for words, sentence in mistakes:
        code, out, err = locality("models", *words)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.startswith("locality: ")
        assert err.count("\n") == 1


def test_convert_says_what_it_runs(locality: Run, tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(nn.Linear(2, 2), path)
    code, _, err = locality("models", "convert", path)
    assert code == 2
    assert "can run any program on this machine while it loads: pass --trust-pickle only if you trust" in err
    code, out, err = locality("models", "convert", path, "--trust-pickle")
    assert (code, out) == (0, f"{path}.safetensors\n")
    assert "can run any program" in err


def test_fetch_of_what_is_here_already(locality: Run, tmp_path: Path) -> None:
    code, out, err = locality("models", "fetch", "efficientnet_lite0", "--quiet")
    assert (code, err) == (0, "")
    assert out == "efficientnet_lite0: 4.7 M parameters, 1000 classes, ready\n"
    assert not (tmp_path / "cache").exists()


def test_fetch_downloads_and_loads(locality: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pth"
    torch.save(build("net:shapes_cnn", 10).state_dict(), path)
    with running_server(monkeypatch) as server:
        server.answers = [Answer(body=path.read_bytes())]
        spec = ModelSpec("toy", (64, 64), 64, classes=CIFAR10)
        card = replace(PUBLISHED[0], spec=spec, architecture="net:shapes_cnn", weights=Address(server.url, "toy.pth"))
        monkeypatch.setattr(catalog, "PUBLISHED", (card,))
        assert locality("models", "fetch", "toy", "--trust-first-download") == (
            0,
            "toy: 0.1 M parameters, 10 classes, ready\n",
            "",
        )
    assert {file.name for file in (tmp_path / "cache/models").iterdir()} == {"toy.pth", "toy.pth.sha256"}
