import json

import pytest

import tiny_datasets
from iaa.cli import main


def test_check_compares_numbers_with_the_paper(tmp_path, capsys):
    root = tiny_datasets.inshop(tmp_path, archive=True)
    assert main(["data", "check", "inshop", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "≠ 25,882" in out
    assert "train samples: 2 here, 25,882 in the paper" in out
    assert "14,218 (query) + 12,612 (gallery) = 26,830 samples, but it says 28,760 (test)" in out
    assert "All 5 images can be read." in out


def test_check_lists_missing_and_broken_images_by_name(tmp_path, capsys):
    home = tiny_datasets.cub(tmp_path) / "CUB_200_2011" / "images"
    (home / "001.Albatross/bird_1.jpg").unlink()
    (home / "200.Yellowthroat/bird_0.jpg").write_text("no image")
    assert main(["data", "check", "cub", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "2 images cannot be read" in out
    assert "CUB_200_2011/images/001.Albatross/bird_1.jpg: no such file" in out
    assert "200.Yellowthroat/bird_0.jpg: not an image, or of an unknown format" in out


def test_check_reads_a_tar_as_well(tmp_path, capsys):
    import tarfile

    tiny_datasets.cub(tmp_path / "there")
    with tarfile.open(tmp_path / "cub.tar", "w") as archive:
        archive.add(tmp_path / "there" / "CUB_200_2011", "CUB_200_2011")
    assert main(["data", "check", "cub", "--root", str(tmp_path / "cub.tar"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["found"]["train"]["samples"] == 6
    assert report["paper"]["train"]["samples"] == 5864
    assert report["unreadable"] == []


def test_check_of_vehicleid_shows_all_three_test_sets(tmp_path, capsys):
    assert (
        main(["data", "check", "vehicleid", "--root", str(tiny_datasets.vehicleid(tmp_path)), "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert {part: row["classes"] for part, row in report["found"].items()} == {
        "train": 3,
        "small": 2,
        "medium": 3,
        "large": 4,
    }
    assert "221,763" in report["contradictions_in_the_paper"][0]


def test_stats_of_ones_own_folder(tmp_path, capsys):
    for name, number in (("bolt", 3), ("nut", 3), ("gear", 1)):
        for i in range(number):
            tiny_datasets.image(tmp_path / name / f"{i}.png", size=(4, 4))
    assert main(["data", "stats", f"folder:{tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "Images in a class" in out
    assert main(["data", "stats", f"folder:{tmp_path}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["found"]["all"] == {"samples": 7, "classes": 3, "max": 3, "min": 1, "avg": 2.3, "std": 0.9}
    assert [row["classes"] for row in report["histogram"]] == [1, 0, 2]


def test_sheet_draws_a_row_per_class(tmp_path, capsys):
    from PIL import Image

    root = tiny_datasets.cub(tmp_path)
    assert main(["data", "sheet", "cub", "--root", str(root), "--out", str(tmp_path / "sheet.png")]) == 0
    with Image.open(tmp_path / "sheet.png") as drawn:
        assert drawn.size == (800, 200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "cub"], "iaa data: cub needs a root"),
        (["stats", "emojis"], "did you mean 'emoji'"),
        (["stats", "folder:/no/such/place"], "folder /no/such/place does not exist"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    assert main(["data", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_path_outside_of_the_root_is_shown_as_given(tmp_path, capsys):
    tiny_datasets.image(tmp_path / "root" / "a.png", seed=0, size=(8, 8))
    (tmp_path / "t.csv").write_text("path,label\na.png,x\n/nowhere/b.png,y\n")
    assert main(["data", "check", f"table:{tmp_path / 't.csv'}", "--root", str(tmp_path / "root")]) == 1
    assert "/nowhere/b.png: no such file" in capsys.readouterr().out
