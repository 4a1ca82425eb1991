import pytest

from iaa.data.class_split import ClassSplit
from iaa.data.dataset import make


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


def test_it_is_written_and_read_and_damage_is_named():
    known = ClassSplit(train=("a",), test=("b",))
    content = {part: list(names) for part, names in known.to_json().items()}
    assert ClassSplit.from_json(content, "classes.json") == known
    with pytest.raises(ValueError, match=r"classes\.json is damaged: it must list the val classes"):
        ClassSplit.from_json({"train": ["a"], "val": "a"}, "classes.json")
