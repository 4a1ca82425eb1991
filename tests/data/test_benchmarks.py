from pathlib import Path

import numpy as np
import pytest

import tiny_datasets
from iaa.data import evaluations, load


def counts(dataset):
    return {split: int((dataset.split == split).sum()) for split in ("train", "val", "test")}


def test_cub_is_halved_by_class_id(tmp_path):
    dataset = load("cub", root=tiny_datasets.cub(tmp_path))
    assert counts(dataset) == {"train": 6, "val": 0, "test": 6}
    assert dataset.class_names == ("001.Albatross", "100.Pelican", "101.White_Pelican", "200.Yellowthroat")
    assert dataset.labels.tolist() == sorted(list(range(4)) * 3)
    assert dataset.labels.dtype == np.int64
    assert dataset.ks == (1, 2, 4, 8)
    assert all(Path(path).is_file() for path in dataset.paths)


def test_cub_may_be_given_by_its_inner_folder(tmp_path):
    assert len(load("cub", root=tiny_datasets.cub(tmp_path) / "CUB_200_2011")) == 12


def test_cars_from_the_mat_file(tmp_path):
    dataset = load("cars", root=tiny_datasets.cars(tmp_path))
    assert counts(dataset) == {"train": 3, "val": 0, "test": 3}
    assert dataset.class_names[0] == "001.Make 1 Sedan 2012"
    assert dataset.labels.tolist() == [1, 2, 0, 2, 3, 0]
    assert dataset.split.tolist() == ["train", "test", "train", "test", "test", "train"]
    assert all(Path(path).is_file() for path in dataset.paths)


def test_cars_from_a_folder_per_class(tmp_path):
    dataset = load("cars", root=tiny_datasets.cars_folders(tmp_path))
    assert counts(dataset) == {"train": 196, "val": 0, "test": 196}
    halves = [set(dataset.part(split).labels.tolist()) for split in ("train", "test")]
    assert halves == [set(range(98)), set(range(98, 196))]
    assert dataset.class_names[0] == "001.AM General 000"
    assert dataset.class_names[195] == "196.smart 195"


def test_cars_of_neither_layout_say_what_was_expected(tmp_path):
    (tmp_path / "Audi").mkdir()
    with pytest.raises(FileNotFoundError, match=r"cars_annos\.mat.*196 class folders.*found 1 folders"):
        load("cars", root=tmp_path)


def test_sop_follows_its_two_lists(tmp_path):
    dataset = load("sop", root=tiny_datasets.sop(tmp_path))
    assert counts(dataset) == {"train": 6, "val": 0, "test": 4}
    assert dataset.class_names == ("1", "2", "10", "11319", "11320")  # as numbers, not as text
    assert dataset.ks == (1, 10, 100)
    assert all(Path(path).is_file() for path in dataset.paths)


@pytest.mark.parametrize("archive", [True, False])
def test_inshop_has_queries_and_a_gallery(tmp_path, archive):
    dataset = load("inshop", root=tiny_datasets.inshop(tmp_path, archive=archive))
    assert dataset.split.tolist() == ["train", "train", "test", "test", "test"]
    assert dataset.role.tolist() == ["both", "both", "query", "gallery", "gallery"]
    assert dataset.labels.tolist() == [0, 0, 1, 1, 1]
    assert dataset.ks == (1, 10, 20)
    assert all(Path(path).is_file() for path in dataset.paths)


def test_vehicleid_has_three_test_sets(tmp_path):
    root = tiny_datasets.vehicleid(tmp_path)
    sizes = {size: len(load("vehicleid", root=root, size=size).part("test")) for size in ("small", "large")}
    assert sizes == {"small": 6, "large": 12}
    assert {name: len(part) for name, part in evaluations("vehicleid", root=root).items()} == {
        "small": 6,
        "medium": 9,
        "large": 12,
    }
    dataset = load("vehicleid", root=root)
    assert len(dataset.part("test")) == 9  # medium
    assert set(dataset.role) == {"both"}
    assert dataset.class_names[:3] == ("7", "16777216", "16777217")  # ids beyond 2^24 stay distinct
    assert dataset.ks == (1, 5)


def test_vehicleid_with_one_gallery_image_per_vehicle(tmp_path):
    root = tiny_datasets.vehicleid(tmp_path)
    draws = [load("vehicleid", root=root, protocol="one-gallery", seed=seed) for seed in range(6)]
    for dataset in draws:
        test = dataset.part("test")
        gallery = test.labels[test.role == "gallery"]
        assert sorted(gallery.tolist()) == [3, 4, 5]
        assert (test.role == "query").sum() == 6
        assert set(dataset.part("train").role) == {"both"}
    again = load("vehicleid", root=root, protocol="one-gallery", seed=0)
    assert again.role.tolist() == draws[0].role.tolist()
    assert len({tuple(dataset.role) for dataset in draws}) > 1
    assert draws[0].draw_gallery(seed=5).role.tolist() == draws[5].role.tolist()


def test_a_wrong_root_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not hold images\.txt or CUB_200_2011/images\.txt"):
        load("cub", root=tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load("sop", root=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="cub needs a root"):
        load("cub")


def test_a_broken_list_names_file_and_line(tmp_path):
    home = tiny_datasets.sop(tmp_path) / "Stanford_Online_Products"
    (home / "Ebay_test.txt").write_text("image_id class_id super_class_id path\n1 2 3\n")
    with pytest.raises(ValueError, match=r"Ebay_test\.txt, line 2: expected image id.*got '1 2 3'"):
        load("sop", root=tmp_path)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("cubs", {}, "did you mean 'cub'"),
        ("cub", {"size": "small"}, "size belongs to vehicleid"),
        ("folder:there", {"root": "here"}, "root belongs to benchmarks and tables"),
        ("emoji", {"test_share": 0.5}, "test_share belongs to own data"),
        ("vehicleid", {"root": ".", "size": "tiny"}, "size must be one of 'small'"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(ValueError, match=message):
        load(spec, **options)
