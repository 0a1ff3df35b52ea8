"""Explanations of one image, by models whose answers are known."""

import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from locality.zoo.load import load_model

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


def test_methods_that_open_the_model_themselves(pixels: Tensor) -> None:
    found = explain_image(Linear(), pixels, ["captum:Saliency", "SM"])
    assert np.allclose(found.maps["captum:Saliency"], found.maps["SM"], atol=1e-6)
    vit = load_model("shapes_vit")
    image = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert explain_image(vit, image, ["Rollout", "BSG"]).maps["Rollout"].min() > 0


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
    with pytest.raises(
        ValueError, match=r"`image` must be a file, a Pillow image, an array H×W×3 or a tensor 3×H×W, got \(1, 3"
    ):
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


def test_an_image_may_be_a_file_a_pillow_image_an_array_or_a_tensor(tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(levels).save(tmp_path / "a.png")
    tensor = torch.from_numpy(levels).permute(2, 0, 1)
    with Image.open(tmp_path / "a.png") as opened:
        given: list[Any] = [
            tmp_path / "a.png",
            opened,
            levels,
            levels / 255,
            levels.astype(np.float32) / 255,
            tensor,
            tensor / 255,
        ]
        found = [explain_image(Linear(), image, ["SM"]) for image in given]
    assert [one.name for one in found[:3]] == ["a.png", "a.png", "image"]
    for one in found:
        assert (one.image == levels).all()
        assert one.maps["SM"] == pytest.approx(found[0].maps["SM"], rel=1e-5)
    grey = explain_image(Linear(), levels[..., 0], ["SM"]).image
    assert (grey == levels[..., :1]).all()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 4), np.uint8), r"an array H×W×3 .* got \(4, 4, 4\)"),
        (np.zeros((4, 4, 3), np.int64), "an array of uint8, or of floats"),
        (np.full((4, 4, 3), 255.0), "`images` must be in"),
        (3, "a file, a Pillow image, .* got 'int'"),
    ],
)
def test_other_images_are_refused(image: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain_image(Linear(), image)


def test_a_photograph_is_turned_as_its_camera_says() -> None:
    picture = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    picture.getexif()[0x0112] = 3  # upside down
    found = explain_image(Linear(), picture, ["SM"])
    assert (found.image == np.asarray(picture)[::-1, ::-1]).all()


def test_classes_and_the_target_are_named(pixels: Tensor) -> None:
    model = Linear(None)
    other = {"cat": "dog", "dog": "cat"}[explain_image(model, pixels, ["SM"], classes=["cat", "dog"]).prediction]
    plain = explain_image(model, pixels, ["SM"], classes=["cat", "dog"])
    found = explain_image(model, pixels, ["SM"], classes=["cat", "dog"], target=other)
    assert found.maps["SM"] == pytest.approx(-plain.maps["SM"], rel=1e-5)  # the logits are w·x and −w·x
    assert f"The maps are those of {other}." in found.sentences()[0]
    assert repr(found).startswith("<Explanation of image: Linear predicts")
    assert explain_image(model, pixels, ["SM"], target=["cat", "dog"].index(other)).target is not None
    with pytest.raises(ValueError, match="`classes` must be 2 names, one per logit, got '3'"):
        explain_image(model, pixels, ["SM"], classes=["cat", "dog", "cow"])
    with pytest.raises(ValueError, match="`target` must be a class of the model or its number, got 'dgo'"):
        explain_image(model, pixels, ["SM"], classes=["cat", "dog"], target="dgo")


def test_a_box_is_drawn_and_maps_are_scored_against_it(pixels: Tensor) -> None:
    model = Linear()
    found = explain_image(model, pixels, ["SM"], box=(0, 0, 2, 4))
    sign = float(torch.sign((pixels * model.weight.detach()).sum()))
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    mask[..., :2] = True
    expected = locality.locality_scores(sign * model.weight.detach()[None], mask).f1
    assert found.scores["SM"][0] == pytest.approx(float(expected), rel=1e-4)
    figure = found.figure()
    assert figure.axes[1].get_xlabel() == f"F1 {found.scores['SM'][0]:.2f}, lift {found.scores['SM'][1]:.2f}".replace(
        "-", "−"
    )
    assert [len(panel.patches) for panel in figure.axes[:2]] == [2, 2]  # a box and its outline
    wide = explain_image(Linear(), np.zeros((4, 8, 3), np.uint8), ["SM"], box=(4, 1, 8, 3))
    assert [(box.x0, box.x1) for box in wide.boxes] == [(2, 4)]  # the crop starts at 2 and ends at 6
    for box, message in (((0, 0, 1), "four numbers"), ((6.2, 0, 8, 4), "inside the part of the image that the model sees")):
        with pytest.raises(ValueError, match=message):
            explain_image(Linear(), np.zeros((4, 8, 3), np.uint8), ["SM"], box=box)


def test_titles_are_no_wider_than_their_tiles(pixels: Tensor) -> None:
    names = ["captum:GuidedGradCam@net.3", "captum:LayerGradCam@net.33", "SM"]
    values = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    drawn = replace(explain_image(Linear(), pixels, ["SM"]), maps=dict.fromkeys(names, values)).figure()
    FigureCanvasAgg(drawn)
    drawn.draw_without_rendering()
    titles = [panel.title.get_window_extent() for panel in drawn.axes[:4]]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(titles))
    texts = [panel.title.get_text() for panel in drawn.axes[:4]]
    assert texts[-1] == "SM"
    assert texts[1].startswith("captum:Gui")
