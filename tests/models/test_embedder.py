import pytest
import torch
from torch import nn

from iaa.models import Embedder, Preprocessing

PREPROCESSING = Preprocessing(
    size=8, resize=9, mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bilinear", aspect="squeeze"
)


def small(**options):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU())
    return Embedder(backbone, features=5, preprocessing=PREPROCESSING, **{"dim": 4, **options})


@pytest.mark.parametrize("pool", ["avg", "avg+max"])
def test_pooling_then_head_as_loops(pool):
    embedder = small(pool=pool).eval()
    images = torch.randn(2, 3, 8, 8)
    maps = embedder.backbone(images).detach()
    weight, bias = embedder.head.weight.detach(), embedder.head.bias.detach()
    expected = torch.zeros(2, 4)
    for i in range(2):
        for d in range(4):
            expected[i, d] = bias[d]
            for c in range(5):
                cells = [float(maps[i, c, y, x]) for y in range(6) for x in range(6)]
                pooled = sum(cells) / len(cells) + (max(cells) if pool == "avg+max" else 0)
                expected[i, d] += weight[d, c] * pooled
    torch.testing.assert_close(embedder(images).detach(), expected)


def test_the_output_is_not_normalised():
    embedder = small().eval()
    images = torch.randn(3, 3, 8, 8)
    before = embedder(images)
    with torch.no_grad():
        embedder.head.weight.mul_(2)
        embedder.head.bias.mul_(2)
    torch.testing.assert_close(embedder(images), 2 * before)


def test_without_dim_the_pooled_features_come_out():
    embedder = small(dim=None).eval()
    images = torch.randn(2, 3, 8, 8)
    assert embedder.dim == 5
    torch.testing.assert_close(embedder(images), embedder.backbone(images).mean((2, 3)))


def test_a_backbone_that_pools_by_itself_is_taken_as_it_is():
    embedder = Embedder(nn.Flatten(), features=12, preprocessing=PREPROCESSING, dim=None)
    images = torch.randn(2, 3, 2, 2)
    torch.testing.assert_close(embedder(images), images.flatten(1))


def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_scale():
    embedder = small(freeze_bn=True)
    embedder.eval().train()
    norm = embedder.backbone[1]
    before = norm.running_mean.clone(), norm.running_var.clone()
    embedder(torch.randn(4, 3, 8, 8)).sum().backward()
    assert embedder.training
    assert embedder.backbone[0].training
    assert torch.equal(norm.running_mean, before[0])
    assert torch.equal(norm.running_var, before[1])
    assert norm.weight.grad is not None


def test_batch_norm_moves_when_it_is_not_frozen():
    embedder = small().train()
    before = embedder.backbone[1].running_mean.clone()
    embedder(torch.randn(4, 3, 8, 8))
    assert not torch.equal(embedder.backbone[1].running_mean, before)


def test_a_frozen_backbone_leaves_the_head_to_learn_and_can_be_released():
    embedder = small(freeze_backbone=True).train()
    embedder(torch.randn(4, 3, 8, 8)).sum().backward()
    assert all(p.grad is None for p in embedder.backbone.parameters())
    assert embedder.head.weight.grad is not None
    assert not embedder.backbone[1].training
    assert [group["name"] for group in embedder.parameter_groups()] == ["head"]
    embedder.freeze_backbone(False)
    assert embedder.backbone[1].training
    assert [group["name"] for group in embedder.parameter_groups()] == ["backbone", "head"]


def test_parameter_groups_cover_everything_once_and_hurry_the_head():
    embedder = small()
    groups = embedder.parameter_groups(lr=1e-3, head_factor=10.0, weight_decay=0.1)
    optimiser = torch.optim.Adam(groups)
    assert [group["lr"] for group in optimiser.param_groups] == [1e-3, 1e-2]
    assert {group["weight_decay"] for group in optimiser.param_groups} == {0.1}
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in embedder.parameters())


def test_the_defaults_are_the_papers():
    backbone, head = small().parameter_groups()
    assert backbone["lr"] == 1e-4
    assert head["lr"] == pytest.approx(1e-3)
    assert backbone["weight_decay"] == 4e-4


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="pool must be one of 'avg', 'avg\\+max'; got 'mean'"):
        small(pool="mean")
    with pytest.raises(ValueError, match="dim must be 1 or more, or None for the bare features; got 0"):
        small(dim=0)


def test_describe_is_one_line_with_the_sizes():
    assert small(freeze_bn=True, name="tiny").describe() == (
        "tiny: 0.0 M parameters, 5 features (avg pooling), linear head to 4, 8 px, "
        "batch-norm statistics frozen"
    )
