"""Does `iaa search --classes` catch as many images of unknown classes as it says?

    iaa embed cub --root ROOT --split all --model lite0 --out cub.safetensors
    iaa embed emoji --split all --model lite0 --out emoji.safetensors
    python benchmarks/unknown.py cub.safetensors emoji.safetensors

Each draw takes some classes as the gallery, whose threshold promises a rate with an interval; the images of
all classes outside measure it, and images of the gallery's classes that were left out measure how many known
ones are kept. Frozen, and whitened by classes that are in neither. Writes unknown.json and unknown.md.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from measurement import HERE, environment, write
from torch import Tensor

import iaa
from iaa.retrieval.classify import Identifier
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.open_set import calibrate, draw_shots

HOWS = ("gaussian", "mean", "image")
GALLERY, STATISTICS = {"cub": 40, "emoji": 100}, 40
"""Classes of a gallery, and classes that whitening is learned from."""


def draw(z: Tensor, labels: Tensor, *, classes: int, each: int | None, how: Any, seed: int) -> dict[str, Any]:
    """One gallery: what its threshold promises, and what it does."""
    generator = torch.Generator().manual_seed(seed)
    names = labels.unique()
    inside = torch.isin(labels, names[torch.randperm(len(names), generator=generator)[:classes]])
    taken = inside if each is None else inside & draw_shots(labels, each, generator)
    found = calibrate(z[taken], labels[taken], how=how)
    gallery = Identifier(z[taken], labels[taken], how=how)
    result = {"unknown_caught": _agreement(found.unknown_caught, _scores(gallery, z[~inside]) < found.score)}
    fresh = inside & ~taken
    if bool(fresh.any()):
        result["known_kept"] = _agreement(found.known_kept, _scores(gallery, z[fresh]) >= found.score)
    return result


def _scores(gallery: Identifier, z: Tensor) -> Tensor:
    return gallery.rank(z, top=1).score[:, 0]


def _agreement(rate: Any, hit: Tensor) -> dict[str, Any]:
    measured = float(hit.double().mean())
    row = {"printed": rate.share, "low": rate.low, "high": rate.high, "measured": measured}
    return row | {"inside": rate.low <= measured <= rate.high}


def measure(data: Embeddings, name: str, draws: int, each: list[int | None]) -> list[dict[str, Any]]:
    """All cases of a dataset; ``each`` are the images that a class has in a gallery of CUB."""
    names = data.labels.unique()
    order = names[torch.randperm(len(names), generator=torch.Generator().manual_seed(0))]
    lends = torch.isin(data.labels, order[:STATISTICS])
    z, labels = data.z[~lends], data.labels[~lends]
    white = iaa.Whitening().fit(data.z[lends], data.labels[lends])
    rows = []
    for space, vectors in (("frozen", z), ("whitened", white.transform(z))):
        for number in each if name == "cub" else (None,):
            for how in HOWS:
                found = [
                    draw(vectors, labels, classes=GALLERY[name], each=number, how=how, seed=seed)
                    for seed in range(draws)
                ]
                rows.append({"data": name, "space": space, "each": number, "how": how, "draws": found})
                print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the table: means over the draws, and how often the measured rate lay in the interval."""
    cells = [row["data"], row["space"], str(row["each"] or "all"), row["how"]]
    for name in ("unknown_caught", "known_kept"):
        found = [draw[name] for draw in row["draws"] if name in draw]
        if not found:
            cells += ["", "", ""]
            continue
        mean = {key: 100 * sum(d[key] for d in found) / len(found) for key in found[0]}
        inside = sum(d["inside"] for d in found)
        cells += [
            f"{mean['printed']:.1f} ({mean['low']:.0f} to {mean['high']:.0f})",
            f"{mean['measured']:.1f}",
            f"{inside} of {len(found)}",
        ]
    return f"| {' | '.join(cells)} |"


def page(result: dict[str, Any]) -> str:
    """The table with its explanation."""
    title, _, rest = (__doc__ or "").partition("\n\n")
    about = rest.partition("\n\n")[2]
    head = (
        "| data | features | images per class | how | unknown caught, printed (interval) | measured | inside "
    )
    head += "| known kept, printed (interval) | measured | inside |"
    rows = [row for rows in result["data"].values() for row in rows]
    table = "\n".join([head, "|" + "---|" * 10, *map(line, rows)])
    return (
        f"# Unknown classes\n\n{title}\n\n{about}\n{table}\n\n"
        f"Galleries of {GALLERY['cub']} classes of CUB-200-2011 and {GALLERY['emoji']} of emoji, Lite0; "
        "means over the draws, in percent. Known queries leave themselves out when the rate is learned:\n"
        f"their classes have an image fewer than the gallery. Commit {result['commit']}.\n"
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--each", type=int, nargs="*", default=[15, 0], help="images of a class; 0 is all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = HERE / "unknown.json"
    result = environment("torch")
    result["data"] = json.loads(file.read_text())["data"] if file.exists() else {}
    for path in options.files:
        data = Embeddings.load(path)
        name = str(data.meta["data"])
        result["data"][name] = measure(data, name, options.draws, [number or None for number in options.each])
        write("unknown", result)
        (HERE / "unknown.md").write_text(page(result))


if __name__ == "__main__":
    main()
