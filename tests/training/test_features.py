import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny_runs
from iaa.data.image_io import UnreadableImage
from iaa.training.features import cached_features, uncached
from iaa.training.model_ladder import open_ladder


@pytest.fixture
def request_(tmp_path):
    """The arguments that features are asked for with."""
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path)
    source, frozen = open_ladder(config)
    return config, source, frozen, {"train": source.dataset.part("train"), **source.tests}


def test_what_an_interrupted_pass_has_finished_need_not_be_computed(request_, monkeypatch):
    def interrupted(network, images, shards, **options):
        shards.add(0, 7, torch.arange(7), torch.zeros(7, network.dim), [])
        raise KeyboardInterrupt

    assert uncached(*request_) == 60
    monkeypatch.setattr("iaa.training.features.embed_images", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached_features(*request_, quiet=True)
    assert uncached(*request_) == 53
    monkeypatch.undo()
    features = cached_features(*request_, quiet=True)
    assert sum(map(len, features.values())) == 60
    assert uncached(*request_) == 0


def test_an_image_that_has_changed_is_embedded_anew(request_):
    cached_features(*request_, quiet=True)
    image = request_[1].dataset.paths[0]
    os.utime(image, ns=(0, os.stat(image).st_mtime_ns + 1))  # of the same size
    assert uncached(*request_) == 60


def test_unreadable_images_are_refused_or_listed_from_the_cache_as_well(request_, caplog):
    config, source, *more = request_
    image = source.dataset.paths[0]
    Path(image).write_bytes(b"no image")
    skipping = replace(config, images=replace(config.images, on_bad_image="skip"))
    for _ in range(2):
        caplog.clear()
        features = cached_features(skipping, source, *more, quiet=True)
        assert sum(map(len, features.values())) == 59
        assert image in caplog.text
    assert uncached(skipping, source, *more) == 0
    with pytest.raises(UnreadableImage, match=image):
        cached_features(config, source, *more, quiet=True)
