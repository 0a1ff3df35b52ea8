import pytest
import torch
from toy_training import batch_of, linear_net, network_of

from locality.training.losses.standard import Standard
from locality.training.regularisers.logit_squeezing import LogitSqueezing
from locality.training.step import LossValue
from locality.zoo.nets.forward_pass import ForwardPass

SMALL = ForwardPass(torch.zeros(2, 1), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
LARGE = ForwardPass(torch.zeros(2, 1), torch.tensor([[30.0, 0.0], [0.0, 10.0]]))


def test_it_is_the_mean_squared_logit() -> None:
    loss = Standard()
    batch = batch_of(network_of(linear_net()), torch.zeros(2, 3, 2, 2), torch.tensor([0, 1]), loss)
    total = torch.zeros(())
    squeezing = LogitSqueezing(weight=0.1)
    assert float(squeezing(batch, LossValue(total, {}, clean=SMALL))) == 2.5
    assert float(squeezing(batch, LossValue(total, {}, attacked=LARGE))) == 250
    assert float(squeezing(batch, LossValue(total, {}, clean=SMALL, attacked=LARGE))) == 2.5
    with pytest.raises(
        ValueError, match="`loss` must be one that makes a pass over clean or attacked images, got 'Standard'"
    ):
        squeezing(batch, LossValue(total, {}))
