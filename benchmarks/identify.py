"""Which class, or none? Gaussians with corrected covariance beside nearest image and nearest mean.

    iaa embed cub --root ROOT --split all --model lite0 --out cub.safetensors
    python benchmarks/identify.py cub.safetensors tune    # options, on training classes alone
    python benchmarks/identify.py cub.safetensors test    # the table, on test classes
    python benchmarks/identify.py RUN test --out FILE     # the same for all images of a trained run

A draw takes 1, 3 or 5 random images of every class as the gallery. Accuracy: all other images ask, all
classes are known. AUROC: a random half of the classes is known, the others' images should score lower.
Threshold: learned on two thirds of the training classes (`calibrate`), which borrow from the rest, applied
to those halves. Gaussians borrow from the training classes; while options are chosen, from one half of them
for the other half. Results go into `identify.json` next to this file, and from there into `identify.md`.
"""

import argparse
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
SHOTS = (1, 3, 5)
ORIGIN = ("data", "model", "preprocessing", "weights_sha256")
CASES: dict[str, dict[str, Any]] = {
    "nearest image, cosine": {"how": "image"},
    "nearest mean, cosine": {"how": "mean"},
    "Gaussians, diagonal, corrected by 25 neighbours": {"how": "gaussian", "shrink": None, "neighbors": 25},
    "Gaussians, full, one covariance for all": {"how": "gaussian", "floor": 1.0},
    "Gaussians, full, corrected by 25 neighbours": {"how": "gaussian", "neighbors": 25},
    "Gaussians, full, corrected by all classes (default)": {"how": "gaussian"},
}


def trial(z, labels, shots: int, reference, cases, generator, learnt=None) -> dict[str, dict[str, float]]:
    """One draw: accuracy with all classes known, AUROC with half of them, and what the threshold does."""
    from iaa.retrieval.classify import Identifier
    from iaa.retrieval.open_set import auroc, draw_shots

    classes = labels.unique()
    half = classes[torch.randperm(len(classes), generator=generator)[: len(classes) // 2]]
    taken, known = draw_shots(labels, shots, generator), torch.isin(labels, half)
    found = {}
    for name, options in cases.items():
        whole = Identifier(z[taken], labels[taken], reference=reference, **options)
        right = whole.rank(z[~taken], top=1).label[:, 0] == labels[~taken]
        part = Identifier(z[taken & known], labels[taken & known], reference=reference, **options)
        inside, outside = (part.rank(z[rows], top=1).score[:, 0] for rows in (known & ~taken, ~known))
        found[name] = {"accuracy": 100 * _mean(right), "auroc": 100 * auroc(inside, outside)}
        if learnt and name in learnt:
            least = learnt[name].score
            found[name]["known_kept"] = 100 * _mean(inside >= least)
            found[name]["unknown_caught"] = 100 * _mean(outside < least)
    return found


def tune(z, labels, draws: int) -> dict[str, Any]:
    """Every combination of options on training classes: half of them lend, the other half is asked for."""
    from iaa.retrieval.classify import frame

    results: dict[str, list[dict[str, float]]] = {}
    settings = [
        {"floor": floor, "neighbors": neighbors}
        for floor in (0.5, 0.8, 0.9, 1.0)
        for neighbors in (0, 25)
        if floor < 1 or neighbors == 0
    ]
    classes = labels.unique()
    for draw in range(draws):
        generator = torch.Generator().manual_seed(1000 + draw)
        lends = torch.isin(
            labels, classes[torch.randperm(len(classes), generator=generator)[: len(classes) // 2]]
        )
        for shrink in (None, 0.2, 0.5, 0.7, 0.9):
            seen = z
            if shrink is not None:  # of the lenders alone, once for all settings: it is most of the work
                seen = frame(z[lends], labels[lends].unique(return_inverse=True)[1], shrink=shrink)(z)
            cases = {
                json.dumps({"shrink": shrink} | one): one | {"how": "gaussian", "shrink": None}
                for one in settings
            }
            for shots in SHOTS:
                order = torch.Generator().manual_seed(10 * draw + shots)
                reference = seen[lends], labels[lends]
                found = trial(seen[~lends], labels[~lends], shots, reference, cases, order)
                for name, numbers in found.items():
                    results.setdefault(name, []).append(numbers)
        print("tune, draw", draw + 1, flush=True)
    means = {name: {key: _average(found, key) for key in found[0]} for name, found in results.items()}
    best = max(means, key=lambda name: means[name]["accuracy"] + means[name]["auroc"])
    return {"draws": draws, "settings": means, "chosen": json.loads(best)}


def test(z, labels, reference, draws: int) -> dict[str, Any]:
    """The table: the package's own defaults on test classes; training classes lend and teach thresholds."""
    from iaa.retrieval.open_set import calibrate

    lends = reference[1] % 3 == 0
    lenders = reference[0][lends], reference[1][lends]
    z_taught, labels_taught = reference[0][~lends], reference[1][~lends]
    out: dict[str, Any] = {"draws": draws, "cases": CASES, "shots": {}}
    for shots in SHOTS:
        learnt = {}
        for name, options in CASES.items():
            with suppress(ValueError):  # known and unknown cannot be told apart: there is no threshold
                learnt[name] = calibrate(z_taught, labels_taught, shots=shots, reference=lenders, **options)
        generator = torch.Generator().manual_seed(shots)
        found = [trial(z, labels, shots, reference, CASES, generator, learnt) for _ in range(draws)]
        out["shots"][str(shots)] = {
            name: {
                key: {
                    "mean": _average([one[name] for one in found], key),
                    "spread": _spread(found, name, key),
                }
                for key in found[0][name]
            }
            for name in CASES
        }
        print(
            "test, shots",
            shots,
            {n: round(v["accuracy"]["mean"], 1) for n, v in out["shots"][str(shots)].items()},
        )
    return out


def _mean(values: torch.Tensor) -> float:
    return float(values.double().mean())


def _average(found: list[dict[str, float]], key: str) -> float:
    return sum(one[key] for one in found) / len(found)


def _spread(found: list[dict[str, dict[str, float]]], name: str, key: str) -> float:
    return (
        float(torch.tensor([one[name][key] for one in found], dtype=torch.float64).std())
        if len(found) > 1
        else 0.0
    )


def write_table(results: dict[str, Any], out: Path) -> None:
    lines = [
        "# Which class, or none",
        "",
        f"Written by `python benchmarks/identify.py`; the numbers are in `{out.name}`.",
    ]
    if "test" in results:
        found = results["test"]
        lines += [
            "",
            f"{found['data']}: {found['classes']} test classes, never trained on; mean ± standard deviation "
            f"over {found['draws']} draws of the gallery.",
            "Accuracy with all classes known; AUROC and thresholds with half of them known. Thresholds are",
            f"learned on the {found['reference_classes']} training classes, which also lend covariance.",
        ]
        for shots, rows in found["shots"].items():
            lines += [
                "",
                f"| {shots} per class | accuracy | AUROC of unknown | known kept | unknown caught |",
                "|---|---|---|---|---|",
            ]
            for name, numbers in rows.items():
                cells = [f"{one['mean']:.1f} ± {one['spread']:.1f}" for one in numbers.values()]
                lines.append(f"| {name} | {' | '.join(cells)} |")
    if "tune" in results:
        found = results["tune"]
        best = sorted(found["settings"].items(), key=lambda one: -one[1]["accuracy"] - one[1]["auroc"])
        lines += [
            "",
            "Options of the Gaussians, on training classes alone: half lend, half are asked for; "
            f"{found['draws']} draws, mean over 1, 3 and 5 images:",
            "",
            "| shrink, floor, neighbours | accuracy | AUROC |",
            "|---|---|---|",
        ]
        for name, numbers in best:
            values = ", ".join(str(value) for value in json.loads(name).values())
            lines.append(f"| {values} | {numbers['accuracy']:.1f} | {numbers['auroc']:.1f} |")
    about = results["surroundings"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines += ["", f"{about['machine']['cpu']}; {versions}; commit {about['commit']}."]
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def everything(path: Path) -> tuple[Any, str]:
    """Embeddings of all splits from a file, or of all images of a run; and in words what they are."""
    from iaa.gallery.gallery import Gallery
    from iaa.inference import load
    from iaa.retrieval.embeddings import Embeddings

    if path.is_dir():
        model = load(path)
        data = Gallery.open(model).data
        return data, f"{model.config.data} through {model.config.model}, trained with {model.config.loss}"
    data = Embeddings.load(path)
    return data, f"{data.meta.get('data')} through frozen {data.meta.get('model')}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("stage", choices=["tune", "test"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "identify.json")
    args = parser.parse_args()
    from measurement import environment

    data, words = everything(args.file)
    parts = {split: data.rows(data.where(split=split)) for split in ("train", "test")}
    reference = parts["train"].z, parts["train"].labels
    results = json.loads(args.out.read_text()) if args.out.exists() else {}
    began = time.monotonic()
    if args.stage == "tune":
        found = tune(*reference, args.draws)
    else:
        found = test(parts["test"].z, parts["test"].labels, reference, args.draws)
        found |= {"data": words, "origin": {key: value for key, value in data.meta.items() if key in ORIGIN}}
        found |= {
            "classes": len(parts["test"].labels.unique()),
            "reference_classes": len(reference[1].unique()),
        }
    results[args.stage] = found | {"seconds": time.monotonic() - began}
    results["surroundings"] = environment("torch", "numpy")
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    write_table(results, args.out)


if __name__ == "__main__":
    main()
