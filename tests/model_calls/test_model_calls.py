import pytest
import torch
from torch import Tensor, nn

from locality.attribution import SM, attribute_all
from locality.boundary import find_boundary
from locality.model_calls import model_device, open_model
from locality.model_calls.checks import check_images, working_copy
from locality.model_calls.randomness import image_seeds


@pytest.fixture
def images() -> Tensor:
    return torch.rand(7, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 5))


def own_logit(logits: Tensor, target: Tensor) -> Tensor:
    return logits.gather(1, target[:, None])[:, 0]


def test_gradients_are_those_of_plain_autograd_and_counted(images: Tensor) -> None:
    model, target = net().eval(), torch.arange(7) % 5
    leaf = images.clone().requires_grad_()
    expected = torch.autograd.grad(own_logit(model(leaf), target).sum(), leaf)[0]
    with open_model(model, images, chunk=3) as calls:
        logits, found = calls.gradient(images, own_logit, target)
        again = calls.logits(images)
        assert (calls.gradients, calls.forwards) == (7, 7)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(logits, model(images), atol=1e-6)
    assert torch.allclose(again, logits, atol=1e-6)


def test_batch_norm_costs_less_while_gradients_of_pixels_are_asked_for(images: Tensor) -> None:
    with open_model(net(), images) as calls:
        logits = calls.run(images.clone().requires_grad_())
    assert logits.grad_fn is not None
    seen, ahead = set(), [logits.grad_fn]
    while ahead:
        function = ahead.pop()
        seen.add(function.name())
        ahead += [following for following, _ in function.next_functions if following is not None]
    assert "_ScaleAndShiftBackward" in seen
    assert "NativeBatchNormBackward0" not in seen


def test_memory_that_runs_out_halves_the_chunk(images: Tensor) -> None:
    seen: list[int] = []

    def hungry(pixels: Tensor) -> Tensor:
        seen.append(len(pixels))
        if len(pixels) > 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return pixels.flatten(1)[:, :4]

    with open_model(hungry, images, chunk=7) as calls:
        assert torch.equal(calls.logits(images), images.flatten(1)[:, :4])
    assert seen == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    with (
        open_model(lambda _: (_ for _ in ()).throw(RuntimeError("out of memory")), images) as calls,
        pytest.raises(RuntimeError),
    ):
        calls.logits(images)  # a single image that does not fit is an error


def test_other_errors_are_not_retried(images: Tensor) -> None:
    def failing(pixels: Tensor) -> Tensor:
        raise RuntimeError("shape mismatch")

    with open_model(failing, images) as calls, pytest.raises(RuntimeError, match="shape mismatch"):
        calls.logits(images)


def test_a_model_that_works_in_place_does_not_touch_the_images(images: Tensor) -> None:
    class InPlace(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            return pixels.sub_(0.5).flatten(1)[:, :4]

    before = images.clone()
    with open_model(InPlace(), images) as calls:
        calls.logits(images)
        _, found = calls.gradient(images, lambda logits: logits.sum(1))
    assert torch.equal(images, before)
    assert found.sum() == 7 * 4


def test_dropout_and_batch_statistics_are_off_and_come_back(images: Tensor) -> None:
    model = nn.Sequential(nn.Dropout(0.5), *net())
    model[3].eval()
    with open_model(model, images) as calls:
        assert not model.training
        assert torch.equal(calls.logits(images), calls.logits(images))
    assert [part.training for part in model] == [True, True, True, False, True, True]
    assert not any(value.any() for name, value in model.named_buffers() if name.endswith("running_mean"))


def test_the_callers_memory_format_and_hooks_stay(images: Tensor) -> None:
    model = net()
    calls_seen: list[int] = []
    handle = model[0].register_forward_hook(lambda *_: calls_seen.append(1))
    with open_model(model, images) as calls:
        calls.logits(images)
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    assert calls_seen == [1]  # the caller's own hooks see our calls
    handle.remove()


def test_the_wrong_device_is_named(images: Tensor) -> None:
    message = "`images` must be on the model's device, meta, got 'cpu'"
    with pytest.raises(ValueError, match=message), open_model(net().to("meta"), images):
        pass


def test_seeds_belong_to_the_image(images: Tensor) -> None:
    seeds = image_seeds(images, 0)
    assert len(set(seeds)) == 7
    assert image_seeds(images.flip(0), 0) == seeds[::-1]
    assert image_seeds(images, 1) != seeds


def test_pixels_outside_their_range_are_allowed_where_asked(images: Tensor) -> None:
    check_images(images * 3 - 1, bounds=None)
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], got \[-1.0, .*bounds=None allows any range"):
        check_images(images * 3 - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_are_noticed_in_any_precision(images: Tensor, dtype: torch.dtype) -> None:
    model = nn.Sequential(net(), nn.Softmax(dim=1)).eval().to(dtype)
    with open_model(model, images) as calls, pytest.warns(UserWarning, match="returns probabilities"):
        calls.logits(images)


class Tutorial(nn.Module):
    """A LeNet as tutorials write it: `.view` demands contiguous memory."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(channels, 4, 3), nn.Linear(4 * 36, 5)

    def forward(self, pixels: Tensor) -> Tensor:
        pixels.sub_(0.5)
        logits: Tensor = self.head(self.convolution(pixels).relu().view(len(pixels), -1))
        return logits


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("spread", [False, True])
def test_models_that_flatten_with_view_and_parallel_ones(images: Tensor, channels: int, spread: bool) -> None:
    torch.manual_seed(0)
    inner = Tutorial(channels)
    model = nn.DataParallel(inner) if spread else inner
    images = images[:, :channels].contiguous()
    leaf = images.clone().requires_grad_()
    expected = inner(leaf * 1.0)
    (slope,) = torch.autograd.grad(expected[:, 2].sum(), leaf)
    before = {name: (id(p), p.stride(), p.requires_grad, p.grad) for name, p in model.named_parameters()}
    with open_model(model, images, chunk=3) as calls:
        assert torch.allclose(calls.logits(images), expected, atol=1e-6)
        logits, found = calls.gradient(images, lambda logits: logits[:, 2])
    assert torch.allclose(logits, expected, atol=1e-6)
    assert torch.allclose(found, slope, atol=1e-6)
    assert before == {name: (id(p), p.stride(), p.requires_grad, p.grad) for name, p in model.named_parameters()}
    assert model.training


def test_a_view_that_fails_is_met_once(images: Tensor) -> None:
    model, seen = Tutorial(), []
    handle = model.convolution.register_forward_hook(lambda *_: seen.append(1))
    with open_model(model, images, chunk=1) as calls:
        calls.logits(images)
    handle.remove()
    assert len(seen) == len(images) + 1


class Constants(nn.Module):
    """Buffers and no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(192, 3))

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.flatten(1) @ self.weights  # type: ignore[operator]


def test_buffers_have_a_device_and_a_precision_too(images: Tensor) -> None:
    with open_model(Constants().double(), images) as calls:
        assert torch.allclose(calls.logits(images), images.flatten(1).sum(1, keepdim=True))
    with pytest.raises(ValueError, match="on the model's device, meta"), open_model(Constants().to("meta"), images):
        pass
    assert model_device(nn.Flatten()) is None


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True])
def test_a_chunk_is_a_number_of_images(images: Tensor, chunk: object) -> None:
    with (
        pytest.raises(ValueError, match="`chunk` must be a whole number of images of at least 1, or None, got"),
        open_model(net(), images, chunk),  # type: ignore[arg-type]
    ):
        pass


def test_warnings_point_to_the_callers_line(images: Tensor) -> None:
    model = nn.Sequential(net(), nn.Softmax(dim=1)).eval()
    for ask in (SM(model).attribute, lambda pixels: attribute_all(model, pixels, ["IG"])):
        with pytest.warns(UserWarning, match="returns probabilities") as seen:
            ask(images)
        assert {warning.filename for warning in seen} == {__file__}
    with pytest.warns(UserWarning, match="returns probabilities") as seen:
        find_boundary(model, images, search="foolbox:DDNAttack", steps=2)
    assert {warning.filename for warning in seen} == {__file__}


def test_an_open_model_passes_through_and_its_counts_continue(images: Tensor) -> None:
    model = net().train()
    with open_model(model, images, chunk=4) as calls:
        calls.logits(images)
        with open_model(calls, images, chunk=2, bounds=None) as same:
            assert same is calls
            assert (calls.chunk, calls.limits) == (2, (-torch.inf, torch.inf))
            same.gradient(images, own_logit, torch.zeros(7, dtype=torch.int64))
        assert (calls.chunk, calls.limits) == (4, (0.0, 1.0))
        assert (calls.forwards, calls.gradients) == (7, 7)
        assert not model.training, "only the block that opened the model restores its mode"
    assert model.training


def test_settings_of_an_open_model_come_back_after_an_exception(images: Tensor) -> None:
    with open_model(net(), images, chunk=4) as calls:
        with pytest.raises(KeyError), open_model(calls, images, chunk=2, bounds=(0.2, 0.8)):
            raise KeyError
        assert (calls.chunk, calls.limits) == (4, (0.0, 1.0))


def test_a_chunk_halved_inside_stays_halved(images: Tensor) -> None:
    def hungry(pixels: Tensor) -> Tensor:
        if len(pixels) > 2:
            raise MemoryError
        return pixels.flatten(1)[:, :4]

    with open_model(hungry, images, chunk=7) as calls:
        with open_model(calls, images):
            calls.logits(images)
        assert calls.chunk == 1


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, torch.float32), (torch.float64, torch.float64)])
def test_the_working_copy_is_the_callers_images_at_float32_or_better(dtype: torch.dtype, expected: torch.dtype) -> None:
    with torch.inference_mode():
        images = torch.rand(2, 3, 4, 4).to(dtype)
        copy = working_copy(images)
    assert copy.dtype == expected
    assert torch.equal(copy, images.to(expected))
    assert copy.data_ptr() != images.data_ptr()
    assert not copy.is_inference()
    with pytest.raises(ValueError, match="`images` must be in"):
        working_copy(images + 2)
