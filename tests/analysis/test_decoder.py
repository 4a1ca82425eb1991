import pytest
import torch

import iaa
from iaa.analysis.decoder import Decoded, decode, learn, load, save


def world(number=300, dim=4, side=8):
    """Images that are a smooth function of the embedding: two halves, each of a colour."""
    z = torch.randn(number, dim)
    levels = (z[:, :3].sigmoid() * 255).round().to(torch.uint8)
    images = levels[:, :, None, None].expand(-1, -1, side, side).clone()
    images[..., side // 2 :] = 255 - images[..., side // 2 :]
    labels = torch.arange(number) // 6
    augment = iaa.IAA(int(labels.max()) + 1, dim, neighbors=5)
    augment.fit(z, labels)
    return z, labels, images, augment


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    z, labels, images, augment = world()
    ticks = []
    return (
        decode(z, labels, images, augment, shown=4, copies=2, epochs=30, tick=ticks.append),
        ticks,
        z,
        images,
    )


def test_a_decoder_learns_what_embeddings_say_of_images(found):
    result, ticks, _, images = found
    assert result.explained > 0.9
    assert (result.seen, result.held_out) == (270, 30)
    assert ticks[-1] == 1.0
    assert torch.equal(result.images, images[result.rows])
    error = (result.reconstructions.float() - result.images.float()).abs().mean()
    assert error < 15  # of 255


def test_synthetics_are_decoded_near_their_sample(found):
    result, *_ = found
    assert result.synthetics.shape == (4, 2, 3, 8, 8)
    own = result.reconstructions[:, None].float()
    near = (result.synthetics.float() - own).abs().mean()
    far = (result.synthetics.float() - own.roll(1, 0)).abs().mean()
    assert 0 < near < far


def test_a_decoder_of_noise_explains_nothing():
    z, labels, _, augment = world(200)
    noise = torch.randint(0, 256, (200, 3, 8, 8), dtype=torch.uint8)
    assert decode(z, labels, noise, augment, epochs=3).explained < 0.05


def test_the_same_seed_gives_the_same_decoder():
    z, _, images, _ = world(60)
    first, again = (learn(z, images, epochs=2, seed=5)(z) for _ in range(2))
    assert torch.equal(first, again)


def test_a_file_gives_back_what_was_saved(found, tmp_path):
    result = found[0]
    kept = Decoded(**{**result.__dict__, "ids": ["a.png"] * 4, "names": ["</script>"] * 4})
    save(kept, tmp_path / "decoded.safetensors")
    again = load(tmp_path / "decoded.safetensors")
    assert torch.equal(again.synthetics, kept.synthetics)
    assert (again.explained, list(again.names)) == (kept.explained, kept.names)


def test_other_files_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="does not hold decoded images"):
        load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("number", "side", "message"), [(5, 8, "10 images or more"), (20, 10, "multiple of 4")]
)
def test_what_cannot_be_decoded_is_said(number, side, message):
    z, labels, images, augment = world(number, side=side)
    with pytest.raises(ValueError, match=message):
        decode(z, labels, images, augment, epochs=1)
