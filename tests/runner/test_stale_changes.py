"""Thirteen changes after which a stored unit is no longer true: each is noticed by the next run."""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locality import files
from locality.results.folder import read_results
from locality.runner import plan as planning
from locality.runner.run import Machine, run_suite
from locality.runner.suite import DataChoice, ModelChoice, Suite

HERE = Machine(processes=0)
Change = Callable[[Path, Callable[..., str], pytest.MonkeyPatch], None]

# What the factory reads from a file can change while no source does.
FACTORY = """
import json
from pathlib import Path

import torch
from stale_helper import softened
from torch import nn

from locality.data.sources.shapes import CLASSES
from locality.types import ModelSpec

OFFSET = 0.0


def shifted(images):
    return images - 0.5


class Net(nn.Module):
    def __init__(self, settings):
        super().__init__()
        generator = torch.Generator().manual_seed(settings["seed"])
        self.weight = nn.Parameter(torch.randn(10, 3 * 64 * 64, generator=generator) / 100)
        self.register_buffer("shift", torch.full((1,), settings["shift"]), persistent=False)
        self.power = settings["power"]
        self.spec = ModelSpec("stale", (64, 64), settings["resize"], classes=CLASSES)

    def forward(self, images):
        features = shifted(images).flatten(1) + self.shift + OFFSET
        return softened(features @ self.weight.T) ** self.power


def made():
    settings = json.loads((Path(__file__).parent / "settings.json").read_text())
    net = Net(settings)
    if settings["hook"]:
        net.register_forward_hook(lambda net, given, logits: logits * torch.linspace(1, 2, 10))
    return net
"""
HELPER = """
def softened(logits):
    return logits.tanh()
"""
SETTINGS = {"seed": 0, "shift": 0.0, "power": 1, "hook": False, "resize": 64}


def setting(name: str, value: object) -> Change:
    def change(folder: Path, *_: object) -> None:
        (folder / "settings.json").write_text(json.dumps(SETTINGS | {name: value}))

    return change


def edited(file: str, before: str, after: str) -> Change:
    def change(folder: Path, *_: object) -> None:
        text = (folder / file).read_text()
        assert before in text
        (folder / file).write_text(text.replace(before, after))

    return change


def replaced_file(folder: Path, write_image: Callable[..., str], _: object) -> None:
    write_image(folder / "1.png", 64, 64, seed=99)


def replaced_entry(folder: Path, write_image: Callable[..., str], _: object) -> None:
    write_image(folder / "1.png", 64, 64, seed=99)
    zipped(folder)


def zipped(folder: Path) -> None:
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(3):
            archive.write(folder / f"{number}.png", f"{number}.png")


def own_sources(folder: Path, _: object, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {**files.source_hashes(), "scores/locality.py": "0" * 64}
    monkeypatch.setattr(files, "source_hashes", lambda: hashes)


CHANGES: dict[str, Change] = {
    "weights": setting("seed", 1),
    "a buffer that is not saved": setting("shift", 0.25),
    "a plain attribute": setting("power", 3),
    "a hook": setting("hook", True),
    "preprocessing": setting("resize", 80),
    "a method": edited("stale_factory.py", "+ OFFSET", "+ OFFSET * 2"),
    "a function beside the class": edited("stale_factory.py", "images - 0.5", "images - 0.25"),
    "a constant beside the class": edited("stale_factory.py", "OFFSET = 0.0", "OFFSET = 1.0"),
    "a function in another file": edited("stale_helper.py", "tanh", "atan"),
    "a box": edited("zip.csv", ",2.0,", ",9.0,"),
    "a file": replaced_file,
    "an entry of a zip": replaced_entry,
    "locality's own sources": own_sources,
}


@pytest.fixture
def folder(tmp_path: Path, write_image: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "stale_factory.py").write_text(FACTORY)
    (tmp_path / "stale_helper.py").write_text(HELPER)
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    header = "id,path,sha256,label,wnid,x0,y0,x1,y1,width,height,source,licence\n"
    for number in range(3):
        write_image(tmp_path / f"{number}.png", 64, 64, seed=number)
    rows = "".join(f"image{n},{n}.png,,0,circle,2.0,3.0,40.0,50.0,64,64,test,CC0-1.0\n" for n in range(3))
    for name in ("files", "zip"):
        (tmp_path / f"{name}.csv").write_text(header + rows)
    zipped(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    monkeypatch.undo()
    forget_modules()


def forget_modules() -> None:
    """As in a new process."""
    planning.installed_versions.cache_clear()
    for name in ("stale_factory", "stale_helper"):
        sys.modules.pop(name, None)


def measured(folder: Path, data: str) -> int:
    """The number of units that a run keeps."""
    forget_modules()
    options = (("root", str(folder / "images.zip")),) if data == "zip" else ()
    choice = DataChoice(str(folder / f"{data}.csv"), options=options)
    models = (ModelChoice("stale", "stale_factory:made"),)
    outcome = run_suite(Suite("stale", models, choice, ("SM",), search="none"), folder / "out", HERE)
    assert not len(outcome.faults), outcome.faults["problem"].tolist()
    return outcome.kept


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(
    name: str, folder: Path, write_image: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "files" if name == "a file" else "zip"
    assert measured(folder, data) == 0
    assert measured(folder, data) == 1
    before = read_results(folder / "out").provenance["data"]["stale"]["sha256"]
    CHANGES[name](folder, write_image, monkeypatch)
    assert measured(folder, data) == 0
    after = read_results(folder / "out").provenance["data"]["stale"]["sha256"]
    assert (after != before) == (name in ("a box", "a file", "an entry of a zip", "preprocessing"))


def test_there_are_thirteen_changes() -> None:
    assert len(CHANGES) == 13


def test_a_file_with_another_hash_than_the_manifest_says_is_a_fault(folder: Path, write_image: Callable[..., str]) -> None:
    manifest = folder / "files.csv"
    manifest.write_text(manifest.read_text().replace("1.png,,", f"1.png,{files.file_hash(folder / '1.png')},"))
    assert measured(folder, "files") == 0
    write_image(folder / "1.png", 64, 64, seed=99)
    models = (ModelChoice("stale", "stale_factory:made"),)
    suite = Suite("stale", models, DataChoice(str(manifest)), ("SM",), search="none")
    faults = run_suite(suite, folder / "new", HERE).faults
    assert faults["image_ids"].tolist() == ["image1"]
    assert "the manifest says" in faults["problem"].iloc[0]
