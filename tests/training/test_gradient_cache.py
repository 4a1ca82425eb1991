import pytest
import torch
from torch import Tensor, nn

from iaa.boosting import BoostedLoss
from iaa.losses import multi_similarity
from iaa.method.augment import IAA
from iaa.training.gradient_cache import embed_in_parts


def network(*, frozen_norm: bool = True, dropout: float = 0.0) -> nn.Module:
    norm = nn.BatchNorm2d(8)
    norm.running_mean, norm.running_var = torch.randn(8), torch.rand(8) + 0.5
    layers = [nn.Conv2d(3, 8, 3), norm, nn.GELU(), nn.Dropout(dropout), nn.Flatten(), nn.Linear(288, 6)]
    model = nn.Sequential(*layers)
    norm.train(not frozen_norm)
    return model


def pair_loss(z: Tensor) -> Tensor:
    """A loss in which every sample meets every other."""
    z = nn.functional.normalize(z, dim=1)
    return (z @ z.T).exp().triu(1).sum()


def gradients(model: nn.Module, z: Tensor, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("micro", [1, 4, 5, 16, 40])
def test_gradients_are_those_of_the_whole_batch(micro):
    model, images = network().double(), torch.randn(16, 3, 8, 8, dtype=torch.double)
    whole, parts = model(images), embed_in_parts(model, images, micro=micro)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    for a, b in zip(
        gradients(model, parts, pair_loss(parts)), gradients(model, whole, pair_loss(whole)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_gradients_agree_in_float32_to_a_millionth():
    model, images = network(), torch.randn(32, 3, 8, 8)
    whole, parts = model(images), embed_in_parts(model, images, micro=8)
    for a, b in zip(
        gradients(model, parts, pair_loss(parts)), gradients(model, whole, pair_loss(whole)), strict=True
    ):
        assert (a - b).norm() <= 1e-6 * b.norm()


def test_boosted_loss_and_its_statistics_see_the_whole_batch():
    model, images, labels = network(), torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    augment = IAA(num_classes=3, dim=6).fit(model(images).detach(), labels)
    criterion = BoostedLoss(multi_similarity().loss, augment)
    found = []
    for micro in (12, 5):
        torch.manual_seed(1)
        z = embed_in_parts(model, images, micro=micro)
        found.append(gradients(model, z, criterion(z, labels)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_dropout_draws_the_same_numbers_on_the_way_back():
    model, images = network(dropout=0.5), torch.randn(8, 3, 8, 8)
    torch.manual_seed(0)
    plain = torch.cat([model(part) for part in images.split(2)])
    expected = gradients(model, plain, pair_loss(plain))
    torch.manual_seed(0)
    parts = embed_in_parts(model, images, micro=2)
    for a, b in zip(gradients(model, parts, pair_loss(parts)), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_autocast_holds_for_the_second_forward_pass():
    model, images = network(), torch.randn(8, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        plain = torch.cat([model(part) for part in images.split(4)])
        parts = embed_in_parts(model, images, micro=4)
    assert parts.dtype == torch.bfloat16
    expected = gradients(model, plain, pair_loss(plain.float()))
    for a, b in zip(gradients(model, parts, pair_loss(parts.float())), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_memory_is_that_of_one_part():
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.GELU())])
    images = torch.randn(512, 64)

    def peak(micro: int) -> int:
        """Most bytes allocated at a time, beyond those at the start."""
        with torch.profiler.profile(profile_memory=True) as profile:
            embed_in_parts(model, images, micro=micro).square().sum().backward()
        changes = sorted(
            (event.start_ns(), event.nbytes())
            for event in profile.profiler.kineto_results.events()
            if event.name() == "[memory]"
        )
        held = torch.tensor([size for _, size in changes]).cumsum(0)
        return int(held.max())

    for _ in range(2):  # the first run allocates gradients
        small, large = peak(32), peak(512)
    assert small < large / 4


def test_training_batch_norm_is_refused_by_name():
    with pytest.raises(ValueError, match=r"batch\.micro .* but 1 normalises over the batch"):
        embed_in_parts(network(frozen_norm=False), torch.randn(8, 3, 8, 8), micro=4)


def test_without_gradients_nothing_is_recomputed():
    model, images = network(frozen_norm=False).eval(), torch.randn(8, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(embed_in_parts(model, images, micro=3), model(images))
    with pytest.raises(ValueError, match="micro must be at least 1, got 0"):
        embed_in_parts(model, images, micro=0)
