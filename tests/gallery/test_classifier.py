import pytest
import torch

from iaa.gallery.classifier import open_classifier
from iaa.gallery.gallery import Gallery
from iaa.retrieval.classify import Identifier
from iaa.retrieval.embeddings import Embeddings


def gallery(tmp_path, name="own", *, classes=24, each=6, first=0, split="train", seed=0, noise=0.3):
    """Classes first … first + classes - 1 in a space that all galleries share."""
    g = torch.Generator().manual_seed(0)
    centre = torch.randn(100, 12, generator=g)
    labels = torch.arange(classes).repeat_interleave(each)
    g = torch.Generator().manual_seed(seed)
    z = centre[labels + first] + noise * torch.randn(len(labels), 12, generator=g)
    names = {label: f"class {label + first}" for label in range(classes)}
    splits = split if isinstance(split, list) else [split] * len(labels)
    data = Embeddings(z, labels, [f"{name} {row}" for row in range(len(z))], names, splits)
    return Gallery.from_embeddings(data, name)


def test_queries_get_classes_of_the_gallery_or_unknown(tmp_path):
    own = gallery(tmp_path, split=["train"] * 96 + ["test"] * 48)
    classifier = open_classifier(own, own=own)
    result = classifier.learned_from
    assert result == "8 classes of the gallery that were not trained on held out in turns"
    mine = gallery(tmp_path, "asked", each=1, seed=1)
    result = classifier.classify(mine.data.z, top=2)
    right = [entry.candidates[0].label == f"class {row}" for row, entry in enumerate(result)]
    assert sum(right) >= 22
    assert sum(bool(entry.known) for entry in result) >= 20
    strangers = classifier.classify(gallery(tmp_path, "other", first=60, each=1, seed=2).data.z)
    assert sum(bool(entry.known) for entry in strangers) <= 4


def test_the_threshold_uses_trained_classes_only_where_others_are_too_few(tmp_path):
    trained = gallery(tmp_path, split=["train"] * 108 + ["val"] * 36)
    expected = "24 classes of the gallery held out in turns, trained on ones among them"
    assert open_classifier(trained).learned_from == expected
    alone = gallery(tmp_path, "alone", split="test")
    assert open_classifier(alone).learned_from == "24 classes of the gallery held out in turns"
    few = gallery(tmp_path, "few", classes=7, split="test")
    classifier = open_classifier(few)
    assert classifier.threshold is None
    assert "needs 8 classes or more" in classifier.learned_from
    assert classifier.classify(few.data.z[:1])[0].known is None


def test_another_gallery_borrows_from_the_run_but_not_from_classes_it_has_itself(tmp_path, monkeypatch):
    from iaa.gallery import classifier as module

    given = []
    plain = Identifier.__init__

    def noted(self, *args, **options):
        given.append(options.get("reference"))
        plain(self, *args, **options)

    monkeypatch.setattr(module.Identifier, "__init__", noted)
    own = gallery(tmp_path)
    other = gallery(tmp_path, "other", classes=10, each=1, first=20, split="test")
    classifier = open_classifier(other, own=own)
    z, labels = given[0]
    assert labels.unique().tolist() == list(range(20))  # classes 20 to 23 stand in both
    assert torch.equal(z, own.data.z[:120])
    assert classifier.learned_from.startswith("24 classes of the run, cut to 1 images each,")
    assert classifier.threshold.shots == 1


@pytest.mark.parametrize("how", ["gaussian", "mean", "image"])
def test_large_sources_are_sampled(tmp_path, monkeypatch, how):
    from iaa.gallery import classifier as module

    monkeypatch.setattr(module, "MAX_CLASSES", 12)
    monkeypatch.setattr(module, "MAX_ROWS", 4)
    classifier = open_classifier(gallery(tmp_path), how=how)
    assert classifier.threshold.classes == 12
    assert classifier.threshold.shots == 4
    assert classifier.identifier.how == how


def test_a_run_of_few_classes_learns_from_the_gallery(tmp_path):
    def gallery(name: str, classes: int, split: str) -> Gallery:
        labels = torch.arange(classes).repeat_interleave(5)
        z = 4 * torch.randn(classes, 16, generator=torch.Generator().manual_seed(1))[labels]
        z += torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(2))
        data = Embeddings(z, labels, [f"{name}{row}" for row in range(len(z))], split=[split] * len(z))
        return Gallery.from_embeddings(data, name)

    classifier = open_classifier(gallery("many", 100, "test"), own=gallery("few", 6, "train"))
    assert classifier.threshold is not None
    expected = "94 classes of the gallery that were not trained on held out in turns"
    assert classifier.learned_from == expected  # six share their names with the run's
