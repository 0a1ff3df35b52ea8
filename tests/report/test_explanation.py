"""Explanations of one image, by models whose answers are known."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from torch import Tensor, nn

import locality
from locality.errors import DataError
from locality.report.explanation import Explanation, explain_image
from locality.types import ModelSpec

SPEC = ModelSpec("<b>two</b>", (4, 4), 4, classes=("n02123045", "circle"))


class Linear(nn.Module):
    """Logits w·x and −w·x: the gradient, the boundary and its distance are known."""

    def __init__(self, spec: ModelSpec | None = SPEC) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 4, 4, generator=generator))
        if spec is not None:
            self.spec = spec

    def forward(self, images: Tensor) -> Tensor:
        value = (images * self.weight).flatten(1).sum(1)
        return torch.stack([value, -value], dim=1)


@pytest.fixture
def pixels() -> Tensor:
    return 0.4 + 0.2 * torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(1))


def test_a_linear_model_is_explained_by_its_weights(pixels: Tensor) -> None:
    model = Linear()
    value = float((pixels * model.weight.detach()).sum())
    found = explain_image(model, pixels, ["SM", "IG", "BIG"])
    names = ["tabby", "circle"] if value > 0 else ["circle", "tabby"]
    chance = 1 / (1 + np.exp(-2 * abs(value)))
    assert [name for name, _ in found.classes] == names
    assert [share for _, share in found.classes] == pytest.approx([chance, 1 - chance], rel=1e-4)
    assert found.prediction == names[0]
    assert found.nearest == names[1]
    assert found.distance == pytest.approx(abs(value) / float(model.weight.detach().norm()), rel=1e-3)
    plane = np.sign(value) * model.weight.detach().sum(0).numpy()
    assert found.maps["SM"] == pytest.approx(plane / np.abs(plane).max(), rel=1e-4)
    assert (found.image == np.rint(pixels.permute(1, 2, 0).numpy() * 255)).all()
    words = " ".join(found.sentences())
    assert f"predicts {names[0]} ({chance:.1%})" in words
    levels = 255 * found.distance / np.sqrt(48)
    assert f"{levels:.2g} levels of 255" in words


def test_a_file_is_fitted_as_the_spec_says(tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (4, 8, 3), dtype=np.uint8)
    Image.fromarray(levels).save(tmp_path / "wide.png")
    found = explain_image(Linear(), tmp_path / "wide.png", ["SM"])
    assert found.name == "wide.png"
    assert (found.image == levels[:, 2:6]).all()


def test_without_a_spec_pixels_are_unchanged_and_classes_have_numbers(pixels: Tensor) -> None:
    found = explain_image(Linear(None), pixels, ["SM"])
    assert {name for name, _ in found.classes} == {"class 0", "class 1"}
    assert found.model == "Linear"


def test_a_model_with_constant_logits(pixels: Tensor) -> None:
    class Constant(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.tensor([[1.0, 0.0]]).expand(len(images), 2) + 0 * images.flatten(1).sum(1, keepdim=True)

    with pytest.warns(UserWarning, match="gradients of exactly 0|saliency map"):
        found = explain_image(Constant(), pixels, ["SM", "BIG"])
    assert found.nearest is None
    assert found.distance == float("inf")
    assert "No image with another prediction was found" in found.sentences()[1]
    assert np.isnan(found.maps["BIG"]).all()
    assert found.maps["SM"].tolist() == np.zeros((4, 4)).tolist()
    panels = [[text.get_text() for text in axes.texts] for axes in found.figure().axes]
    assert panels[2] == ["undefined"]


def test_the_picture_has_the_image_the_maps_and_the_classes(pixels: Tensor, tmp_path: Path) -> None:
    found = explain_image(Linear(), pixels, ["SM", "IG", "BIG"])
    figure = found.figure()
    assert [axes.get_title() for axes in figure.axes[:5]] == ["image", "SM", "IG", "BIG", "predicted class"]
    assert np.array_equal(np.asarray(figure.axes[0].images[0].get_array()), found.image)
    words = [text.get_text() for text in figure.axes[4].texts]
    assert words[0] == found.prediction
    assert words[1] == f"{found.classes[0][1]:.1%}"
    for name in ("a.png", "b.pdf", "c.svg"):
        assert found.save(tmp_path / "new" / name).stat().st_size > 1000
    with pytest.raises(ValueError, match=r"`path` must be a file name that ends in \.png, \.pdf, \.svg, got 'a\.jpg'"):
        found.save("a.jpg")


def test_a_notebook_displays_it(pixels: Tensor) -> None:
    found = explain_image(Linear(), pixels, ["SM"])
    with Image.open(io.BytesIO(found._repr_png_())) as picture:
        assert picture.format == "PNG"
        assert picture.width > picture.height
    # Notebooks store every form there is: a second one would double their size.
    assert not hasattr(found, "_repr_html_")
    assert locality.explain_image is explain_image


def test_the_model_and_the_pixels_stay_as_they_were(pixels: Tensor) -> None:
    model = Linear().train()
    before = pixels.clone()
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    explain_image(model, pixels, ["SM", "BIG"])
    assert model.training
    assert model.weight.grad is None
    assert torch.equal(pixels, before)
    assert torch.rand(1) == expected


def test_mistakes_are_named(tmp_path: Path, pixels: Tensor) -> None:
    (tmp_path / "text.jpg").write_text("<html>")
    with pytest.raises(DataError, match=r"text\.jpg`: not an image"):
        explain_image(Linear(), tmp_path / "text.jpg")
    with pytest.raises(FileNotFoundError):
        explain_image(Linear(), tmp_path / "nothing.png")
    with pytest.raises(ValueError, match=r"`image` must be a file or pixels 3×H×W, got \(1, 3"):
        explain_image(Linear(), pixels[None])
    with pytest.raises(ValueError, match="`images` must be in"):
        explain_image(Linear(None), pixels + 1)
    with pytest.raises(ValueError, match="did you mean 'BIG'"):
        explain_image(Linear(), pixels, ["BIGG"])
    with pytest.raises(ValueError, match="`methods` must be at least one method"):
        explain_image(Linear(), pixels, [])


def test_only_the_first_classes_are_listed() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 9))
    found = explain_image(net, torch.rand(3, 2, 2), ["SM"])
    assert isinstance(found, Explanation)
    assert len(found.classes) == 5
    chances = [share for _, share in found.classes]
    assert chances == sorted(chances, reverse=True)


@pytest.mark.parametrize("methods", [["SM"], ["SM", "IG", "BIG"]])
def test_sentences_stay_inside_the_picture_whatever_the_names(pixels: Tensor, methods: list[str]) -> None:
    word = "W" * 150
    spec = replace(SPEC, name=f"a model $of$ {word}", classes=("a class with many words in its name, " * 4, word))
    figure = explain_image(Linear(spec), pixels, methods).figure()
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    assert figure._suptitle is not None  # type: ignore[attr-defined]
    box = figure._suptitle.get_window_extent(renderer)  # type: ignore[attr-defined]
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1
    # Nothing is left out, and the tiles below are not squeezed by it.
    assert figure._suptitle.get_text().count("W") >= 150  # type: ignore[attr-defined]
    assert figure.axes[1].get_window_extent(renderer).height > 1.2 * figure.dpi


def test_an_abstention_is_stated_and_not_attributed(pixels: Tensor) -> None:
    class Cautious(Linear):
        def abstains(self, logits: Tensor) -> Tensor:
            return logits.softmax(1).amax(1) < self.threshold

        threshold = 1.1

    explained = explain_image(Cautious(), pixels, ["SM", "BIG"])
    assert explained.abstained
    assert explained.sentences()[0].startswith("<b>two</b> abstains; its most probable class is ")
    assert all(np.isnan(values).all() for values in explained.maps.values())
    assert [[text.get_text() for text in axes.texts] for axes in explained.figure().axes[1:3]] == [["undefined"]] * 2
    sure = Cautious()
    sure.threshold = 0.0
    assert not explain_image(sure, pixels, ["SM"]).abstained
    assert not np.isnan(explain_image(sure, pixels, ["SM"]).maps["SM"]).any()
