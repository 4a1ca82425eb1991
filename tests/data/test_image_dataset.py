import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tiny_datasets
from iaa.data import load
from iaa.data.image_cache import ImageCache, free_memory
from iaa.data.image_dataset import ImageDataset, loader, transform
from iaa.data.image_io import UnreadableImage
from iaa.data.sampler import BalancedSampler, Numbered
from iaa.torchvision_compat import torchvision

CUB = next(
    (
        up / "shared/data/cub160.tar"
        for up in Path(__file__).parents
        if (up / "shared/data/cub160.tar").is_file()
    ),
    None,
)


def some(folder, number=6, size=(30, 20)):
    paths = [tiny_datasets.image(folder / f"{i}.png", seed=i, size=size) for i in range(number)]
    return paths, [i % 3 for i in range(number)]


def small(train=False, **keys):
    return transform(train, size=8, resize=10, **keys)


@pytest.mark.parametrize("aspect", ["squeeze", "keep"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_test_transform_is_the_usual_pil_pipeline(tmp_path, aspect, interpolation):
    torchvision()
    from torchvision import transforms

    image = Image.open(tiny_datasets.image(tmp_path / "a.png", size=(300, 200)))
    to = (256, 256) if aspect == "squeeze" else 256
    usual = transforms.Compose(
        [
            transforms.Resize(to, interpolation=transforms.InterpolationMode(interpolation)),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    ours = transform(False, aspect=aspect, interpolation=interpolation)(image)
    assert ours.shape == (3, 224, 224)
    assert (ours - usual(image)).abs().max() < 2.5 / 255 / 0.224  # a level or two of rounding


def test_training_draws_crops_and_flips(tmp_path):
    ramp = np.tile(np.arange(64, dtype=np.uint8)[None, :, None], (64, 1, 3))
    step = transform(True, size=48, resize=64, mean=(0.0, 0.0, 0.0), std=(1 / 255,) * 3)
    seen = {tuple(step(Image.fromarray(ramp))[0, 0].round().int().tolist()) for _ in range(60)}
    starts = {line[0] for line in seen if line[0] < line[-1]}
    assert len(starts) > 5
    assert any(line[0] > line[-1] for line in seen)
    assert all(abs(line[-1] - line[0]) == 47 for line in seen)


def test_mean_and_std_are_on_the_unit_scale():
    white = Image.new("RGB", (10, 10), "white")
    lite0 = small(mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    torch.testing.assert_close(lite0(white), torch.ones(3, 8, 8))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"aspect": "squash"}, "did you mean 'squeeze'"),
        ({"interpolation": "cubic"}, "did you mean 'bicubic'"),
        ({"size": 300}, "resize must be at least the crop's size, got resize=256 and size=300"),
    ],
)
def test_transform_names_what_it_cannot_do(keys, message):
    with pytest.raises(ValueError, match=message):
        transform(False, **keys)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_cache_fills_in_the_first_epoch_and_changes_nothing(tmp_path, workers):
    paths, labels = some(tmp_path)
    plain = torch.stack(
        [image for image, _ in (ImageDataset(paths, labels, small(), cache=False)[i] for i in range(6))]
    )
    images = ImageDataset(paths, labels, small())
    batches = loader(images, batch_size=4, workers=workers)
    for _ in range(2):
        got = list(batches)
        torch.testing.assert_close(torch.cat([batch.images for batch in got]), plain)
        assert torch.cat([batch.labels for batch in got]).tolist() == labels
        assert torch.cat([batch.rows for batch in got]).tolist() == list(range(6))
        assert len(images.cache) == 6  # also what the workers put there
        for path in paths:
            Path(path).unlink(missing_ok=True)  # so the second epoch can only come from memory


def test_the_note_reports_the_size_of_the_cache(tmp_path, monkeypatch):
    paths, labels = some(tmp_path)
    assert "image cache: on, 6 images need 0.00 GiB" in ImageDataset(paths, labels, small()).note
    monkeypatch.setattr("iaa.data.image_dataset.free_memory", lambda: 1000)
    tight = ImageDataset(paths, labels, small())
    assert tight.cache is None
    assert "image cache: off" in tight.note
    assert ImageDataset(paths, labels, small(), cache=True).cache is not None


def test_a_full_cache_takes_no_more_and_a_copy_of_it_is_off():
    cache = ImageCache(3, budget=100)
    first = np.full((4, 4, 3), 7, dtype=np.uint8)
    cache.put(0, first)
    cache.put(1, first + 1)
    cache.put(2, first)
    assert len(cache) == 2
    assert cache.used == 96
    assert (cache.get(1) == 8).all()
    assert cache.get(2) is None
    assert len(pickle.loads(pickle.dumps(cache))) == 0
    assert free_memory() > 0


def test_keeping_the_aspect_caches_images_of_any_shape(tmp_path):
    paths = [tiny_datasets.image(tmp_path / f"{i}.png", size=(20 + 7 * i, 20)) for i in range(3)]
    images = ImageDataset(paths, [0, 1, 2], small(True, aspect="keep"))
    for _ in range(2):
        assert [images[i][0].shape for i in range(3)] == [(3, 8, 8)] * 3
    assert [images.cache.get(i).shape for i in range(3)] == [(10, 10, 3), (10, 13, 3), (10, 17, 3)]


def test_any_callable_on_pil_images_will_do(tmp_path):
    paths, labels = some(tmp_path)
    images = ImageDataset(paths, labels, lambda image: torch.tensor(image.size))
    assert images[0][0].tolist() == images[0][0].tolist() == [30, 20]
    assert next(iter(loader(images, workers=0))).images.shape == (6, 2)


def test_an_unreadable_image_stops_before_anything_starts(tmp_path):
    paths, labels = some(tmp_path)
    Path(paths[2]).write_text("no image")
    Path(paths[4]).unlink()
    with pytest.raises(UnreadableImage, match=r"2\.png.*and 1 more: `iaa data check` lists them"):
        ImageDataset(paths, labels, small())


def test_or_is_left_out_and_listed(tmp_path, caplog):
    paths, labels = some(tmp_path)
    Path(paths[2]).write_text("no image")
    images = ImageDataset(paths, labels, small(), on_bad_image="skip")
    assert len(images) == 5
    assert images.labels.tolist() == [0, 1, 0, 1, 2]
    assert [error.path for error in images.bad] == [paths[2]]
    assert "2.png" in caplog.text


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_lost_later_is_named_without_a_workers_traceback(tmp_path, workers):
    paths, labels = some(tmp_path)
    strict, lenient = (
        ImageDataset(paths, labels, small(), on_bad_image=mode, cache=False) for mode in ("raise", "skip")
    )
    Path(paths[1]).unlink()
    with pytest.raises(UnreadableImage) as caught:
        list(loader(strict, batch_size=3, workers=workers))
    assert str(caught.value) == f"cannot read image {paths[1]}: no such file"
    batches = loader(lenient, batch_size=3, workers=workers)
    for _ in range(2):
        assert torch.cat([batch.rows for batch in batches]).tolist() == [0, 2, 3, 4, 5]
    assert [error.path for error in lenient.bad] == [paths[1]]


def test_batches_follow_the_balanced_sampler(tmp_path):
    paths, labels = some(tmp_path, number=12)
    images = ImageDataset(paths, labels, small(True))
    sampler = BalancedSampler(images.labels, classes=3, per_class=2)
    batches = list(loader(images, batches=sampler, workers=0))
    assert len(batches) == len(sampler) == 2
    assert all(sorted(batch.labels.tolist()) == [0, 0, 1, 1, 2, 2] for batch in batches)


def test_crops_and_flips_follow_the_numbers_whoever_loads(tmp_path):
    paths, labels = some(tmp_path, number=12)

    def crops(epoch, workers, start=0):
        torch.manual_seed(workers)  # must not matter
        sampler = BalancedSampler(labels, classes=3, per_class=2)
        sampler.set_epoch(epoch, start=start)
        images = ImageDataset(paths, labels, small(True))
        return [batch.images for batch in loader(images, batches=Numbered(sampler), workers=workers)]

    first = crops(0, workers=0)
    assert all(map(torch.equal, first, crops(0, workers=2)))
    assert torch.equal(first[1], crops(0, workers=0, start=1)[0])
    assert not all(map(torch.equal, first, crops(1, workers=0)))


def test_wrong_arguments_are_named(tmp_path):
    paths, labels = some(tmp_path)
    with pytest.raises(ValueError, match="6 paths but 5 labels"):
        ImageDataset(paths, labels[:5], small())
    with pytest.raises(ValueError, match="did you mean 'skip'"):
        ImageDataset(paths, labels, small(), on_bad_image="skipp")
    with pytest.raises(ValueError, match="cache must be one of"):
        ImageDataset(paths, labels, small(), cache="on")


@pytest.mark.skipif(
    CUB is None, reason="the CUB photos may not be handed on: put cub160.tar into ../shared/data"
)
def test_real_photos_of_birds(tmp_path):
    with tarfile.open(CUB) as archive:
        names = [
            member
            for member in archive
            if member.name.endswith(("s.txt", "_0010_.jpg")) or "_0003_" in member.name
        ]
        archive.extractall(tmp_path, members=names, filter="data")
    dataset = load("cub", root=tmp_path)
    train, test = dataset.part("train"), dataset.part("test")
    assert (len(train), len(train.class_sizes())) == (5864, 100)
    assert (len(test), len(test.class_sizes())) == (5924, 100)
    there = dataset.take(["_0003_" in path for path in dataset.paths]).take(range(12))
    images = ImageDataset(there.paths, there.labels, transform(False))
    batch = next(iter(loader(images, workers=0)))
    assert batch.images.shape == (12, 3, 224, 224)
    assert 0.3 < batch.images.std() < 2


def test_a_line_of_pixels_does_not_become_a_huge_image():
    line = torch.arange(4000, dtype=torch.uint8).expand(3, 1, 4000)
    prepared = transform(True, size=8, resize=8, aspect="keep").prepare(line)
    assert prepared.shape == (3, 8, 8 * 16)
    assert abs(int(prepared[0, 0, 64]) - 4000 // 2 % 256) <= 1  # its middle
