"""Maps and masks that cannot be scored."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from locality.scores.map_features import check_maps, region_share

MAPS, MASKS = torch.zeros(2, 3, 4, 5), torch.zeros(2, 1, 4, 5, dtype=torch.bool)


@pytest.mark.parametrize(
    ("maps", "masks", "channels", "error", "words"),
    [
        (
            MAPS[:, 0],
            MASKS,
            "all",
            ValueError,
            r"`maps` must be a float tensor N×C×H×W, got torch.float32 of shape \(2, 4, 5\)",
        ),
        (MAPS.int(), MASKS, "all", ValueError, r"`maps` must be a float tensor N×C×H×W, got torch.int32"),
        (MAPS.numpy(), MASKS, "all", ValueError, r"`maps` must be a float tensor N×C×H×W, got ndarray"),
        (MAPS[:0], MASKS[:0], "all", ValueError, r"`maps` must be at least one map, got \(0, 3, 4, 5\)"),
        (MAPS, MASKS.float(), "all", TypeError, r"`masks` must be a tensor of bool, got torch.float32 .* masks > 0"),
        (MAPS, MASKS[:, 0], "all", ValueError, r"`masks` must be N×1×H×W, got \(2, 4, 5\)"),
        (MAPS, MASKS.expand(2, 3, 4, 5), "all", ValueError, r"`masks` must be N×1×H×W, got \(2, 3, 4, 5\)"),
        (MAPS, MASKS[:1], "all", ValueError, r"`masks` must be N×1×H×W like the maps, \(2, 1, 4, 5\), got \(1, 1, 4, 5\)"),
        (MAPS, MASKS[..., :4], "all", ValueError, r"like the maps, \(2, 1, 4, 5\), got \(2, 1, 4, 4\)"),
        (MAPS, MASKS.to("meta"), "all", ValueError, r"`maps` are on cpu, `masks` on meta: move one"),
        (MAPS, MASKS, "mean", ValueError, r"`channels` must be one of all, sum, got 'mean'"),
    ],
)
def test_errors_say_what_came(maps: Tensor, masks: Tensor, channels: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check_maps(maps, masks, channels)  # type: ignore[arg-type]


def test_the_share_of_the_region() -> None:
    masks = MASKS.clone()
    masks[0, 0, :2] = True
    assert region_share(masks).tolist() == [0.5, 0.0]
    with pytest.raises(TypeError, match="`masks` must be a tensor of bool"):
        region_share(masks.int())
