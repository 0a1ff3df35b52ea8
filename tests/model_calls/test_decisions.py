"""A decision is a class or an abstention, and an abstention is never right."""

import torch
from torch import Tensor, nn

from locality.model_calls.decisions import correct, decisions
from locality.types import ABSTAINED


class Hesitant(nn.Module):
    """Declines to decide where the two largest logits are closer than 1."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)

    def abstains(self, logits: Tensor) -> Tensor:
        first, second = logits.topk(2).values.unbind(1)
        return first - second < 1


def test_a_model_that_abstains_says_so() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.0], [3.0, 2.5, 0.0]])
    assert decisions(Hesitant(), logits).tolist() == [0, ABSTAINED]
    assert decisions(nn.Flatten(), logits).tolist() == [0, 0]
    assert decisions(lambda images: images, logits).tolist() == [0, 0]


def test_a_decision_is_right_if_it_is_one_of_the_accepted_labels() -> None:
    predictions = torch.tensor([0, 1, ABSTAINED, 2])
    assert correct(predictions, [(0,), (2, 1), (0, 1, 2), ()]).tolist() == [True, True, False, False]
