"""GN-LeNet with its fused layer against the same network of torch's own layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddlsim.models.cnn import GNLeNet


def plain(channels, features):
    layers = []
    for before, after in ((channels, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 5, padding=2), nn.GroupNorm(2, after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 10))


@pytest.mark.parametrize(("shape", "features"), [((3, 32, 32), 1024), ((1, 28, 28), 576)])
def test_forward_and_one_sgd_step_equal_the_plain_network(shape, features):
    torch.manual_seed(0)
    images, labels = torch.randn(8, *shape), torch.randint(10, (8,))
    fused, unfused = GNLeNet().build(shape, 10), plain(shape[0], features)
    with torch.no_grad():
        for ours, theirs in zip(fused.parameters(), unfused.parameters(), strict=True):
            theirs.copy_(ours)
    torch.testing.assert_close(fused(images), unfused(images), atol=1e-5, rtol=0)
    for model in (fused, unfused):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    for ours, theirs in zip(fused.parameters(), unfused.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_initial_values_equal_the_plain_network():
    torch.manual_seed(5)
    fused = GNLeNet().build((3, 32, 32), 10)
    torch.manual_seed(5)
    unfused = plain(3, 1024)
    for ours, theirs in zip(fused.parameters(), unfused.parameters(), strict=True):
        assert torch.equal(ours, theirs)
