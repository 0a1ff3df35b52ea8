"""Figure 2.3: the geometry that is drawn is the network's own."""

import functools

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray
from report.figures.panel_contents import panel_annotations

from locality.report.figures.geometry import geometry_plot
from locality.report.figures.toy_network import Geometry, mean_cosines, toy_geometry, trained_net


@functools.cache
def toy() -> Geometry:
    return toy_geometry()


def gradient(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the logit that is predicted at x, by autograd; its mean over several places."""
    net = toy().net
    label = int(net(torch.tensor(toy().point[None], dtype=torch.float32)).argmax())
    points = torch.tensor(places.reshape(-1, 2), dtype=torch.float32, requires_grad=True)
    net(points)[:, label].mean().backward()
    assert points.grad is not None
    gradients: NDArray[np.float64] = points.grad.sum(0).double().numpy()
    return gradients


def test_the_point_across_is_the_nearest_of_a_fine_lattice() -> None:
    side = torch.linspace(0, 1, 401)
    points = torch.cartesian_prod(side, side)
    net = toy().net
    here = net(torch.tensor(toy().point[None], dtype=torch.float32))[0, 0] > 0
    others = points[(net(points)[:, 0] > 0) != here].double().numpy()
    nearest = np.linalg.norm(others - toy().point, axis=1).min()
    distance = np.linalg.norm(toy().across - toy().point)
    assert distance == pytest.approx(nearest, abs=0.004)


def test_the_logits_are_opposite_so_that_gradients_are_normal_to_the_boundary() -> None:
    logits = toy().net(torch.rand(50, 1, 1, 2, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(logits[:, 0], -logits[:, 1])


def test_the_four_vectors_are_gradients_and_means_of_gradients() -> None:
    one = toy()
    assert one.normals["SM"] == pytest.approx(gradient(one.point), rel=1e-4)
    assert one.normals["BSM"] == pytest.approx(gradient(one.across), rel=1e-4)
    for name, start in (("IG", np.zeros(2)), ("BIG", one.across)):
        steps = (np.arange(2000) + 0.5) / 2000
        mean = gradient(start + steps[:, None] * (one.point - start))
        assert one.normals[name] == pytest.approx(mean, abs=0.05 * float(np.linalg.norm(mean)))


def test_sm_misses_the_boundary_that_bsm_is_normal_to() -> None:
    one = toy()
    assert one.cosine("SM") < 0.5
    # The way to the nearest point of a straight piece of boundary is along its normal.
    way = one.point - one.across
    cosine = way @ one.normals["BSM"] / np.linalg.norm(way) / np.linalg.norm(one.normals["BSM"])
    assert cosine == pytest.approx(1, abs=0.02)


def test_the_point_shows_the_difference_of_both_pairs_of_methods() -> None:
    one = toy()
    assert 1 - one.cosine("SM") > 0.5
    assert one.cosine("BIG") - one.cosine("IG") > 0.5
    right = geometry_plot().figure.axes[1]
    tips = [np.array(note.xy) - one.point for note in panel_annotations(right) if note.arrow_patch is not None]
    assert len(tips) == 2
    angle = np.degrees(np.arccos(tips[0] @ tips[1] / np.linalg.norm(tips[0]) / np.linalg.norm(tips[1])))
    assert angle > 30


def test_the_name_of_the_point_across_stands_clear_of_its_marker() -> None:
    figure = geometry_plot().figure
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    half = 6 / 2**0.5 / 72 * figure.dpi  # of the diamond, from its middle to a corner
    for axes in figure.axes:
        [name] = [text for text in axes.texts if text.get_text() == "x′"]
        box, (x, y) = name.get_window_extent(renderer), axes.transData.transform(toy().across)
        gap = np.hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1)) - half
        assert gap >= 3 / 72 * figure.dpi - 1


def test_the_means_are_over_all_points_not_the_illustrative_one() -> None:
    means = mean_cosines(toy().net)
    assert set(means) == {"SM", "IG", "BIG"}
    assert means["SM"] > toy().cosine("SM")
    assert all(-1 <= value <= 1 for value in means.values())


def test_the_callers_random_state_and_threads_stay() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    trained_net.__wrapped__()
    assert torch.rand(2).tolist() == expected.tolist()


def test_the_figure_has_both_panels_and_the_cosines() -> None:
    figure = geometry_plot().figure
    assert len(figure.axes) == 2
    words = figure.get_supxlabel()
    for name in ("SM", "IG", "BIG"):
        assert f"{name} {toy().cosine(name):.2f}".replace("-", "−") in words
    for axes, names in zip(
        figure.axes, ({"SM", "BSM", "H₁", "H₂", "x", "x′"}, {"IG", "BIG", "x", "x′", "b, black"}), strict=True
    ):
        assert names <= {text.get_text() for text in axes.texts}
