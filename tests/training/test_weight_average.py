import pytest
import torch
from torch import nn

from iaa.training.weight_average import WeightAverage


def test_it_is_the_moving_average_of_the_weights():
    network = nn.Linear(3, 2)
    average = WeightAverage(network, decay=0.9)
    expected = network.weight.detach().clone()
    for step in range(1, 30):
        with torch.no_grad():
            network.weight.normal_()
        average.update(network)
        keep = min(0.9, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep) * network.weight.detach()
    torch.testing.assert_close(average.average["weight"], expected)


def test_applied_lends_the_average_and_gives_the_weights_back():
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = WeightAverage(network)
    with torch.no_grad():
        network[0].weight.add_(1)
    own = network[0].weight.detach().clone()
    with average.applied(network):
        torch.testing.assert_close(network[0].weight, own - 1)
    assert torch.equal(network[0].weight, own)
    with pytest.raises(RuntimeError, match="stop"), average.applied(network):
        raise RuntimeError("stop")
    assert torch.equal(network[0].weight, own)


def test_frozen_weights_are_left_alone():
    network = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    network[0].requires_grad_(False)
    average = WeightAverage(network)
    assert set(average.average) == {"1.weight", "1.bias"}
    network[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"the same weights as before; 0\.bias differs"):
        average.update(network)


def test_a_checkpoint_continues_to_the_same_bits():
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    first, second = WeightAverage(network, decay=0.8), WeightAverage(nn.Linear(3, 2), decay=0.8)
    with torch.no_grad():
        network.weight.normal_()
    first.update(network)
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        network.weight.normal_()
    first.update(network)
    second.update(network)
    assert torch.equal(first.average["weight"], second.average["weight"])
    assert second.steps == 2
