"""What the paper says of the datasets (Table II and Section VI-A), and where it contradicts itself."""

from dataclasses import asdict, dataclass

import numpy as np

from iaa.data.dataset import Dataset


@dataclass(frozen=True)
class Facts:
    """Counts of one part of a dataset; None where nothing is known."""

    samples: int | None = None
    classes: int | None = None
    max: int | None = None
    min: int | None = None
    avg: float | None = None
    std: float | None = None

    def items(self) -> list[tuple[str, int | float]]:
        """The numbers that are given, by name."""
        return [(name, value) for name, value in asdict(self).items() if value is not None]


PAPER: dict[str, dict[str, Facts]] = {
    "cub": {
        "all": Facts(11_788, 200),
        "train": Facts(5_864, 100, 60, 41, 58.6, 3.5),
        "test": Facts(5_924, 100),
    },
    "cars": {
        "all": Facts(16_185, 196),
        "train": Facts(8_054, 98, 97, 59, 82.2, 7.2),
        "test": Facts(8_131, 98),
    },
    "sop": {
        "all": Facts(120_053, 22_634),
        "train": Facts(59_551, 11_318, 12, 2, 5.3, 3.0),
        "test": Facts(60_502, 11_316),
    },
    "inshop": {
        "all": Facts(52_712, 7_982),
        "train": Facts(25_882, 3_997, 162, 1, 6.5, 6.4),
        "test": Facts(28_760, 3_985),
        "query": Facts(14_218, 3_985),
        "gallery": Facts(12_612, 3_985),
    },
    "vehicleid": {
        "all": Facts(221_736, 26_267),
        "train": Facts(110_178, 13_134, 142, 2, 8.4, 9.5),
        "test": Facts(111_585),
        "small": Facts(classes=800),
        "medium": Facts(classes=1_600),
        "large": Facts(classes=2_400),
    },
}


def summary(dataset: Dataset) -> dict[str, Facts]:
    """Counts of the whole set, of every split, and of queries and gallery where they are apart."""
    parts = {"all": dataset} | {name: dataset.part(name) for name in ("train", "val", "test")}
    parts |= {role: dataset.take(dataset.role == role) for role in ("query", "gallery")}
    return {name: facts(part) for name, part in parts.items() if len(part)}


def facts(dataset: Dataset) -> Facts:
    """Samples, classes, and the largest, smallest, mean and (population) deviation of class sizes."""
    sizes = dataset.class_sizes()
    mean, deviation = float(sizes.mean()), float(sizes.std())
    return Facts(
        len(dataset), len(sizes), int(sizes.max()), int(sizes.min()), round(mean, 1), round(deviation, 1)
    )


def differences(name: str, measured: dict[str, Facts]) -> list[str]:
    """Every number that differs from the paper's, as text."""
    published = PAPER.get(name, {})
    return [
        f"{part} {what}: {getattr(measured[part], what):,} here, {value:,} in the paper"
        for part, paper in published.items()
        if part in measured
        for what, value in paper.items()
        if getattr(measured[part], what) != value
    ]


def contradictions(name: str) -> list[str]:
    """Sums and averages within the paper's own numbers that do not come out."""
    published = PAPER.get(name, {})
    samples = {part: facts.samples for part, facts in published.items() if facts.samples is not None}
    texts = []
    for whole, parts in (("all", ("train", "test")), ("test", ("query", "gallery"))):
        if all(part in samples for part in (whole, *parts)):
            total = sum(samples[part] for part in parts)
            terms = " + ".join(f"{samples[part]:,} ({part})" for part in parts)
            if total != samples[whole]:
                texts.append(f"{terms} = {total:,} samples, but it says {samples[whole]:,} ({whole})")
    for part, paper in published.items():
        if paper.samples and paper.classes and paper.avg:
            mean = round(paper.samples / paper.classes, 1)
            if mean != paper.avg:
                ratio = f"{paper.samples:,} / {paper.classes:,} = {mean}"
                texts.append(f"{part}: {ratio}, but it says {paper.avg}")
    return texts


def histogram(dataset: Dataset, *, bins: int = 12) -> list[tuple[int, int, int]]:
    """Class sizes as (from, to, number of classes); the bins double in width where the tail is long."""
    sizes = dataset.class_sizes()
    low, high = int(sizes.min()), int(sizes.max())
    if high - low < bins:
        edges = np.arange(low, high + 2)
    elif high > 16 * low:
        edges = np.unique(np.r_[low, 2 ** np.arange(int(np.log2(low)) + 1, int(np.log2(high)) + 1), high + 1])
    else:
        edges = np.unique(np.linspace(low, high + 1, bins + 1).astype(int))
    counts, _ = np.histogram(sizes, bins=edges)
    limits = edges.tolist()
    return list(zip(limits[:-1], [edge - 1 for edge in limits[1:]], counts.tolist(), strict=True))
