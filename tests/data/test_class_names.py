import pytest

from locality import load_dataset
from locality.data.class_names import match_classes
from locality.data.labels import UnknownClassesWarning
from locality.data.manifest import Entry, Manifest
from locality.data.source import Pixels, Source
from locality.imagenet_classes import imagenet_wnids
from locality.types import ModelSpec

TABBY, RETRIEVER = "n02123045", "n02099601"


def test_names_match_words_of_imagenet() -> None:
    classes = imagenet_wnids()
    match = match_classes(["tabby cat", "Golden_Retriever", RETRIEVER, "T-shirt", "jersey"], classes)
    assert {name: classes[index] for name, index in match.index.items()} == {
        "tabby cat": TABBY,
        "Golden_Retriever": RETRIEVER,
        RETRIEVER: RETRIEVER,
        "T-shirt": "n03595614",
        "jersey": "n03595614",
    }
    assert match.by_name == {name: classes[index] for name, index in match.index.items() if name != RETRIEVER}
    assert match.unmatched == ()


def test_what_fits_several_classes_or_none_is_listed() -> None:
    match = match_classes(["crane", "cat", "dog!"], imagenet_wnids())
    assert match.index == {}
    assert match.unmatched == ("crane", "cat", "dog!")  # "cat" is the word of no class, only a part of some
    assert match.ambiguous == {"crane": ("n02012849", "n03126707")}


def test_wordnet_ids_match_names_but_not_other_ids() -> None:
    assert match_classes([TABBY], ["dog", "Tabby-Cat"]).index == {TABBY: 1}
    assert match_classes([TABBY], ["n02123159"]).index == {}
    # Two cranes are two classes, though they share their word.
    assert match_classes(["n02012849"], ["n03126707"]).index == {}
    assert match_classes(["cat"], ["Cat", "cat"]).index == {"cat": 1}
    assert match_classes(["CAT"], ["Cat", "cat"]).unmatched == ("CAT",)


def source_of(*names: str, assumed: bool = True) -> Source:
    import numpy as np
    import torch

    box = np.array([[1.0, 1.0, 3.0, 3.0]])
    entries = [Entry(str(n), "", sorted(names).index(name), name, 8, 8, box) for n, name in enumerate(names)]
    pixels = Pixels(torch.zeros(3, 8, 8, dtype=torch.uint8))
    manifest = Manifest.of(entries, "test", "CC0")
    return Source("mine", manifest, tuple(sorted(names)), lambda index, outline=False: pixels, assumed_order=assumed)


def labels_for(monkeypatch: pytest.MonkeyPatch, source: Source, spec: ModelSpec) -> list[int]:
    monkeypatch.setattr("locality.data.dataset.open_source", lambda *args, **options: source)
    return [sample.label for sample in load_dataset("mine", spec=spec)]


def test_unmatched_names_are_in_the_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec("net", (8, 8), 8, classes=("Tabby cat", "n03126707", "n02012849"))
    with pytest.warns(
        UnknownClassesWarning, match=r"2 of 3 images of mine .*\(crane, which is n03126707 or n02012849, dodo\)"
    ):
        assert labels_for(monkeypatch, source_of("tabby_cat", "crane", "dodo"), spec) == [0, -1, -1]


def test_an_order_that_nobody_states_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("dog", "cat")
    with pytest.warns(UnknownClassesWarning, match=r"in the order of mine \(0 cat, 1 dog\): name its classes"):
        assert labels_for(monkeypatch, source, ModelSpec("net", (8, 8), 8, num_classes=2)) == [1, 0]
    with pytest.warns(UnknownClassesWarning, match="net has 10 classes, but mine has 2, and nobody says which is which"):
        assert labels_for(monkeypatch, source, ModelSpec("net", (8, 8), 8, num_classes=10)) == [-1, -1]
    stated = source_of("dog", "cat", assumed=False)
    assert labels_for(monkeypatch, stated, ModelSpec("net", (8, 8), 8, num_classes=10)) == [1, 0]  # no warning
