"""Every official layout in small, in the real formats: the lists as published, a real .mat, real JPEGs."""

from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat


def image(path: Path, *, seed: int = 0, size: tuple[int, int] = (24, 16), like: int | None = None) -> str:
    """Noise; images that are ``like`` the same number share most of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape)
    if like is not None:
        pixels = (pixels + 7 * np.random.default_rng([like, 1]).integers(0, 256, shape)) // 8
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return str(path)


def cub(root: Path) -> Path:
    home = root / "CUB_200_2011"
    classes = {1: "001.Albatross", 100: "100.Pelican", 101: "101.White_Pelican", 200: "200.Yellowthroat"}
    files = [(number, f"{name}/bird_{i}.jpg") for number, name in classes.items() for i in range(3)]
    for _, file in files:
        image(home / "images" / file)
    (home / "images.txt").write_text("".join(f"{i} {file}\n" for i, (_, file) in enumerate(files, 1)))
    labels = "".join(f"{i} {number}\n" for i, (number, _) in enumerate(files, 1))
    (home / "image_class_labels.txt").write_text(labels)
    return root


def cars(root: Path) -> Path:
    classes = [98, 99, 1, 99, 196, 1]
    fields = ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
    entries = np.zeros((1, len(classes)), dtype=[(field, object) for field in fields])
    for i, number in enumerate(classes):
        file = f"car_ims/{i + 1:06d}.jpg"
        image(root / file)
        entries[0, i] = (file, 1, 1, 9, 9, number, i % 2)
    names = np.array([f"Make {number} Sedan 2012" for number in range(1, 197)], dtype=object).reshape(1, -1)
    savemat(root / "cars_annos.mat", {"annotations": entries, "class_names": names})
    return root


def cars_folders(root: Path) -> Path:
    """The layout found today: train/ and test/ (of the classification task), a folder per class in each."""
    for number in range(196):
        make = ("AM General", "Acura", "Eagle", "FIAT", "Volvo", "smart")[number // 33]
        for half in ("train", "test"):
            image(root / half / f"{make} {number:03d}" / f"{number}.png", size=(4, 4))
    return root


def sop(root: Path) -> Path:
    home = root / "Stanford_Online_Products"
    for part, products in (("train", (1, 2, 10)), ("test", (11319, 11320))):
        lines = ["image_id class_id super_class_id path"]
        for product in products:
            for i in range(2):
                file = f"bicycle_final/{product}_{i}.JPG"
                image(home / file)
                lines.append(f"{len(lines)} {product} 1 {file}")
        (home / f"Ebay_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def inshop(root: Path, *, archive: bool) -> Path:
    """As the archive unpacks (Eval/ and Img/img/), or flattened into one folder."""
    rows = [
        ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
        ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
        ("MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "query"),
        ("MEN/Denim/id_00000080/01_2_side.jpg", "id_00000080", "gallery"),
        ("MEN/Denim/id_00000080/01_7_additional.jpg", "id_00000080", "gallery"),
    ]
    images, lists = (root / "Img", root / "Eval") if archive else (root, root)
    lists.mkdir(parents=True, exist_ok=True)
    for file, _, _ in rows:
        image(images / "img" / file)
    head = f"{len(rows)}\nimage_name                         item_id     evaluation_status\n"
    body = "".join(f"img/{file}     {item} {status}\n" for file, item, status in rows)
    (lists / "list_eval_partition.txt").write_text(head + body)
    return root


def vehicleid(root: Path) -> Path:
    home = root / "VehicleID_V1.0"
    (home / "train_test_split").mkdir(parents=True)
    lists = {"train_list": (7, 16777217, 16777216), "test_list_800": (3, 4)}
    lists |= {"test_list_1600": (3, 4, 5), "test_list_2400": (3, 4, 5, 6)}
    for name, vehicles in lists.items():
        lines = []
        for vehicle in vehicles:
            for i in range(3):
                number = f"{vehicle * 10 + i:09d}"
                image(home / "image" / f"{number}.jpg", size=(8, 8))
                lines.append(f"{number} {vehicle}\n")
        (home / "train_test_split" / f"{name}.txt").write_text("".join(lines))
    return root
