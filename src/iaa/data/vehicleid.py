"""PKU VehicleID: three predefined test sets and the two protocols in use."""

from pathlib import Path

from iaa.data.dataset import Dataset, make
from iaa.data.file_listing import locate, rows
from iaa.errors import unknown

SIZES = {"small": 800, "medium": 1600, "large": 2400}
PROTOCOLS = ("leave-one-out", "one-gallery")


def vehicleid(root: Path, *, size: str, protocol: str, seed: int) -> Dataset:
    """The training list and one of the predefined test lists (Section VI-A).

    ``leave-one-out``: every test image is a query against all the others, as metric-learning papers do.
    ``one-gallery``: one image per vehicle, drawn by ``seed``, is the gallery, as the dataset's authors do;
    ``Dataset.draw_gallery`` repeats the draw.
    """
    if size not in SIZES:
        raise unknown("size", size, SIZES)
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    home = locate(root, "train_test_split/train_list.txt", inside=("VehicleID_V1.0", "VehicleID"))
    paths, names, split = [], [], []
    for part, file in (("train", "train_list.txt"), ("test", f"test_list_{SIZES[size]}.txt")):
        table = rows(home / "train_test_split" / file, ("image name", "vehicle id"))
        paths += [str(home / "image" / f"{image}.jpg") for image, _ in table]
        names += [vehicle for _, vehicle in table]
        split += [part] * len(table)
    dataset = make("vehicleid", paths, names, split, ks=(1, 5))
    return dataset if protocol == "leave-one-out" else dataset.draw_gallery(seed=seed)
