import csv
import importlib.util

import numpy as np
import pytest

import tiny_datasets
from iaa.data import load


def folder(root, names, *, per_class=2):
    for name in names:
        for i in range(per_class):
            tiny_datasets.image(root / name / f"{i}.png", size=(4, 4))
    return root


def table(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_plain_folder_gets_a_seeded_class_disjoint_split(tmp_path):
    root = folder(tmp_path, [f"part {i}" for i in range(10)])
    (root / "part 0" / "notes.txt").write_text("no image")
    (root / "part 0" / "._0.png").write_text("left by a file manager")
    dataset = load(f"folder:{root}", seed=3)
    train, test = (set(dataset.part(split).labels.tolist()) for split in ("train", "test"))
    assert (train, test) == (set(range(8)), {8, 9})
    assert len(dataset) == 20
    assert dataset.split.tolist() == load(f"folder:{root}", seed=3).split.tolist()
    assert len({tuple(load(f"folder:{root}", seed=seed).split) for seed in range(5)}) > 1
    assert len(np.unique(load(f"folder:{root}", test_share=0.5).part("test").labels)) == 5


def test_a_folder_may_bring_its_own_parts(tmp_path):
    folder(tmp_path / "train", ["a", "b"])
    folder(tmp_path / "val", ["c"])
    folder(tmp_path / "query", ["d"], per_class=1)
    folder(tmp_path / "gallery", ["d", "e"])
    dataset = load(f"folder:{tmp_path}")
    assert {s: len(dataset.part(s)) for s in ("train", "val", "test")} == {"train": 4, "val": 2, "test": 5}
    assert dataset.class_names == tuple("abcde")
    assert sorted(dataset.part("test").role) == ["gallery"] * 4 + ["query"]


def test_train_and_test_may_share_classes(tmp_path):
    folder(tmp_path / "train", ["a", "b"])
    folder(tmp_path / "test", ["b", "c"])
    dataset = load(f"folder:{tmp_path}")
    assert sorted(set(dataset.part("train").labels.tolist())) == [0, 1]
    assert sorted(set(dataset.part("test").labels.tolist())) == [1, 2]


def test_a_folder_without_classes_is_refused(tmp_path):
    tiny_datasets.image(tmp_path / "loose.png")
    with pytest.raises(ValueError, match="expected one sub-folder per class"):
        load(f"folder:{tmp_path}")


def test_the_csv_of_open_metric_learning_works_as_it_is(tmp_path):
    rows = [
        {
            "label": 5,
            "path": "a.png",
            "split": "train",
            "is_query": "",
            "is_gallery": "",
            "x_1": "",
            "x_2": "",
        },
        {
            "label": 7,
            "path": "b.png",
            "split": "validation",
            "is_query": True,
            "is_gallery": True,
            "x_1": 2,
            "x_2": 9,
        },
        {
            "label": 7,
            "path": "c.png",
            "split": "validation",
            "is_query": False,
            "is_gallery": True,
            "x_1": 0,
            "x_2": 4,
        },
    ]
    rows = [row | {"y_1": row["x_1"], "y_2": row["x_2"], "category": "toys"} for row in rows]
    dataset = load(f"table:{table(tmp_path / 'df.csv', rows)}")
    assert dataset.split.tolist() == ["train", "test", "test"]
    assert dataset.role.tolist() == ["both", "both", "gallery"]
    assert dataset.paths[0] == str(tmp_path / "a.png")
    assert dataset.boxes is not None
    np.testing.assert_array_equal(dataset.boxes[1:], [[2, 2, 9, 9], [0, 0, 4, 4]])
    assert np.isnan(dataset.boxes[0]).all()


def test_sequences_are_kept_row_by_row(tmp_path):
    rows = [
        {"path": f"{i}.png", "label": i % 2, "sequence": s} for i, s in enumerate(["v1", "", "v1", "nan"])
    ]
    dataset = load(f"table:{table(tmp_path / 't.csv', rows)}", test_share=0.5)
    assert dataset.sequence.tolist() == ["v1", "", "v1", ""]
    assert dataset.take([2, 1]).sequence.tolist() == ["v1", ""]
    plain = [{"path": f"{i}.png", "label": i, "sequence": ""} for i in range(2)]
    assert load(f"table:{table(tmp_path / 'p.csv', plain)}", test_share=0.5).sequence is None


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ({"x_1": 1}, "t.csv has an incomplete box: it has no y_1 and no x_2 and no y_2"),
        ({"x_1": 1, "y_1": 1, "x_2": 4, "y_2": ""}, "t.csv, row 1: incomplete box: y_2 empty"),
        ({"x_1": 5, "y_1": 1, "x_2": 4, "y_2": 9}, r"row 1: a box needs x_1 < x_2 .*, got 5, 1, 4, 9"),
        ({"x_1": 1, "y_1": 9, "x_2": 4, "y_2": 9}, r"row 1: a box needs x_1 < x_2 .*, got 1, 9, 4, 9"),
        ({"x_1": 1, "y_1": 9, "x_2": "inf", "y_2": 19}, "row 1: a box needs"),
    ],
)
def test_half_and_inverted_boxes_are_refused_when_the_table_is_read(tmp_path, box, message):
    rows = [{"path": "a.png", "label": 1, "split": "train"} | box]
    with pytest.raises(ValueError, match=message):
        load(f"table:{table(tmp_path / 't.csv', rows)}")


def test_a_folder_one_level_too_high_names_the_right_one(tmp_path):
    folder(tmp_path / "mine", ["ash", "elm", "oak"])
    with pytest.raises(
        ValueError, match=rf"single class, 'mine', which has 3 .* folder:{tmp_path / 'mine'}\?"
    ):
        load(f"folder:{tmp_path}")


def test_files_that_are_not_images_are_counted(tmp_path, caplog):
    root = folder(tmp_path / "mine", ["ash", "elm"])
    for name in ("a.heic", "b.HEIC", "notes.txt", ".hidden", "README"):
        (root / "ash" / name).touch()
    load(f"folder:{root}", test_share=0.5)
    load(f"folder:{root}", test_share=0.5)
    (message,) = caplog.messages  # once
    assert message == (
        f"{root}: 4 files are not images and are ignored (2 .heic, 1 .txt, 1 no ending); "
        "pip install pillow-heif to read .heic"
    )


def test_images_in_no_class_folder_are_named(tmp_path, caplog):
    root = folder(tmp_path / "mine", ["ash", "elm"])
    (root / "loose.png").touch()
    load(f"folder:{root}", test_share=0.5)
    expected = f"{root}: images in no class folder are ignored (1, such as {root / 'loose.png'})"
    assert caplog.messages == [expected]
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").touch()
    with pytest.raises(ValueError, match=r"no images in sub-folders \(1 outside them\): expected one"):
        load(f"folder:{tmp_path / 'flat'}")


def test_heic_is_read_where_its_decoder_is_installed(tmp_path, monkeypatch):
    from iaa.data import file_listing

    root = folder(tmp_path / "mine", ["ash", "elm"])
    (root / "ash" / "a.heic").touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "pillow_heif" or None)
    file_listing.image_suffixes.cache_clear()
    try:
        assert len(load(f"folder:{root}", test_share=0.5)) == 5
    finally:
        monkeypatch.undo()
        file_listing.image_suffixes.cache_clear()


def test_any_label_type_stays_distinct(tmp_path):
    labels = [16777216, 16777217, "7", "07", "Ärmel, lang", 2**63]
    rows = [{"path": f"{i}.png", "label": label, "split": "train"} for i, label in enumerate(labels)]
    dataset = load(f"table:{table(tmp_path / 't.csv', rows)}", root=tmp_path / "elsewhere")
    assert len(set(dataset.labels.tolist())) == 6
    assert [dataset.class_names[i] for i in dataset.labels] == list(map(str, labels))
    assert dataset.paths[0] == str(tmp_path / "elsewhere" / "0.png")


def test_val_stays_val_where_there_is_a_test_part(tmp_path):
    rows = [{"path": "x.png", "label": part, "split": part} for part in ("train", "validation", "test")]
    assert load(f"table:{table(tmp_path / 't.csv', rows)}").split.tolist() == ["train", "val", "test"]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    columns = {"path": ["a.png", "b.png", "c.png"], "label": [2**53 + 1, 2**53, 2**53]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    dataset = load(f"table:{tmp_path / 't.parquet'}", test_share=0.5)
    assert sorted(dataset.class_names) == [str(2**53), str(2**53 + 1)]
    assert set(dataset.split) == {"train", "test"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"file": "a.png", "label": 1}, "no column 'path': it has file, label"),
        ({"path": "a.png", "label": 1, "split": "tran"}, "row 1: split must be train, val"),
        ({"path": "a.png", "label": ""}, "row 1: the label is empty"),
        (
            {"path": "a.png", "label": 1, "split": "test", "is_query": 0, "is_gallery": 0},
            "row 1: a test image must be query, gallery or both",
        ),
        (
            {"path": "a.png", "label": 1, "split": "test", "is_query": "maybe", "is_gallery": 1},
            "row 1: is_query must be true or false, got 'maybe'",
        ),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        load(f"table:{table(tmp_path / 't.csv', [row])}")


def test_a_ragged_line_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("path,label\na.png,1\nb.png\n")
    with pytest.raises(ValueError, match=r"line 3: expected 2 columns, got 1"):
        load(f"table:{tmp_path / 't.csv'}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label\nä.png,1\n".encode("latin-1"), r"t\.csv must be text in UTF-8"),
        (
            b"path,label,x_1,y_1,x_2,y_2\na.png,1,0,0,9,9\nb.png,1,0,0,a,9\n",
            r"t\.csv, row 2: x_2 must be a num",
        ),
        (b"path,label\n", r"t\.csv has no rows"),
        (b"", r"t\.csv is empty"),
        (b"path,label\n" + b"x" * 200_000 + b",1\n", r"t\.csv is not a csv table: field larger"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(f"table:{tmp_path / 't.csv'}")


def test_a_damaged_parquet_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"t\.parquet is truncated or not a Parquet file"):
        load(f"table:{tmp_path / 't.parquet'}")


def test_roles_without_a_split_hold_in_the_classes_that_are_drawn_for_testing(tmp_path):
    lines = ["path,label,is_query,is_gallery"]
    lines += [f"{label}-{n}.png,{label},{int(n == 0)},{int(n > 0)}" for label in range(10) for n in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    test = load(f"table:{tmp_path / 't.csv'}").part("test")
    assert test.role.tolist() == ["query", "gallery", "gallery"] * 2
