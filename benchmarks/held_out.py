"""What around a frozen backbone pays, measured on held-out training classes of CUB-200-2011.

python benchmarks/held_out.py --cub DIR-OR-TAR [--tinyvit FILE] [--flip] [--extras]

Half of the training classes give the statistics, the other half is scored, in turns; with all images and with
three of every class. Test classes are not looked at. Writes held_out.json and held_out.md.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from measurement import HERE, environment, write
from photo_features import features, few_per_class, flipped, halves, options
from sklearn.covariance import ledoit_wolf_shrinkage, oas
from torch import Tensor

import iaa
from iaa.method.full_covariance import mixture
from iaa.method.whitening import signed_power, whitening_map, within_covariance
from iaa.method.within_class import WithinClass
from iaa.retrieval.knn import knn
from iaa.retrieval.query_expansion import expand
from iaa.retrieval.reranking import rerank

Row = tuple[str, dict[str, float]]
SHRINKS = (0.0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
REGIONS = 8


def scores(z: Tensor, labels: Tensor, gallery: tuple[Tensor, Tensor] | None = None) -> dict[str, float]:
    """R@1 and MAP@R."""
    found = iaa.score(z, labels, gallery=gallery, ks=(1,))
    return {name: found[name] for name in ("R@1", "MAP@R")}


def closed_form(z: Tensor, labels: Tensor, held: Tensor, held_labels: Tensor) -> Iterator[Row]:
    """Shrinkage, power, dimensions."""
    yield "frozen", scores(held, held_labels)
    yield "signed square root", scores(signed_power(held, 0.5), held_labels)
    for power in (1.0, 0.5):
        known, unseen = signed_power(z, power), signed_power(held, power)
        stats = WithinClass.of(known, labels)
        values, vectors = torch.linalg.eigh(stats.within.float())
        rotated = (unseen - stats.center.float()) @ vectors
        for shrink in SHRINKS:
            scale = ((1 - shrink) * values + shrink * values.mean()).clamp(min=1e-10).rsqrt()
            yield f"power {power}, shrink {shrink}", scores(rotated * scale, held_labels)
    white = iaa.Whitening().fit(z, labels)
    yield "auto", scores(white.transform(held), held_labels) | {"shrink": float(white.chosen_shrink or 0)}
    for dim in (64, 128, 256, 512):
        if dim < z.shape[1]:
            reduced = iaa.Whitening(shrink=white.chosen_shrink, dim=dim).fit(z, labels)
            yield f"auto, dim {dim}", scores(reduced.transform(held), held_labels)
    known = signed_power(z, white.exponent)
    _, inverse, count = labels.unique(return_inverse=True, return_counts=True)
    residual = (known - iaa.estimate(known, inverse, num_classes=len(count)).mean[inverse]).numpy()
    rules = {"Ledoit-Wolf": ledoit_wolf_shrinkage(residual, assume_centered=True),
             "OAS": oas(residual, assume_centered=True)[1]}  # fmt: skip
    for name, shrink in rules.items():
        found = iaa.Whitening(shrink=float(shrink)).fit(z, labels).transform(held)
        yield name, scores(found, held_labels) | {"shrink": float(shrink)}


def corrected(z: Tensor, labels: Tensor, held: Tensor, held_labels: Tensor) -> Iterator[Row]:
    """Neighbour correction: in the pooled estimate, and as a metric of each region."""
    white = iaa.Whitening().fit(z, labels)
    shrink = float(white.chosen_shrink or 0)
    known, unseen = signed_power(z, white.exponent), signed_power(held, white.exponent) - white.center
    _, labels = labels.unique(return_inverse=True)
    stats = iaa.estimate(known, labels, num_classes=int(labels.max()) + 1)
    kernel: dict[str, Any] = {"neighbors": 25, "mean_width": 1.0, "cov_width": 1.0, "scale": "minmax"}
    members, parts, _ = mixture(
        stats,
        torch.arange(len(stats.count)),
        correction=True,
        global_share=0.1,
        falloff=0.1,
        few=40,
        **kernel,
    )
    lent = torch.zeros(len(stats.count)).index_add_(0, members.flatten(), parts.flatten())
    gap = (known - stats.mean[labels]) * (lent / stats.count)[labels].sqrt()[:, None]
    pooled = whitening_map(gap.T @ gap, shrink=shrink)
    yield "pooled from corrected covariances", scores(unseen @ pooled.T, held_labels)
    overall = within_covariance(known, labels)
    centers = _regions(stats.mean - white.center)
    region = torch.cdist(stats.mean - white.center, centers).argmin(1)
    own = torch.cdist(unseen, centers).argmin(1)
    for share in (0.3, 0.7):
        first, precision, counted = [], [], 0
        for number in range(len(centers)):
            queries = (own == number).nonzero().flatten()
            mine = region[labels] == number
            if len(queries) == 0 or mine.sum() < 2:
                continue
            local = within_covariance(known[mine], labels[mine])
            local = local * (overall.trace() / local.trace()) if local.trace() > 0 else overall
            map_ = whitening_map(overall.lerp(local, share), shrink=shrink)
            hits = _hits(unseen @ map_.T, held_labels, queries)
            first.append(hits[0])
            precision.append(hits[1])
            counted += len(queries)
        total = {
            "R@1": 100 * float(torch.cat(first).mean()),
            "MAP@R": 100 * float(torch.cat(precision).mean()),
        }
        yield f"metric of each of {REGIONS} regions, share {share}", total


def _regions(means: Tensor) -> Tensor:
    """Centres of k-means over class means."""
    centers = means[torch.randperm(len(means), generator=torch.Generator().manual_seed(0))[:REGIONS]]
    for _ in range(20):
        near = torch.cdist(means, centers).argmin(1)
        centers = torch.stack([means[near == k].mean(0) if (near == k).any() else centers[k]
                               for k in range(len(centers))])  # fmt: skip
    return centers


def _hits(z: Tensor, labels: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the nearest is right, and MAP@R, of some queries among all."""
    z = F.normalize(z, dim=1)
    similarity = z[queries] @ z.T
    similarity[torch.arange(len(queries)), queries] = -torch.inf
    positives = torch.bincount(labels)[labels[queries]] - 1
    rank = torch.arange(1, int(positives.max()) + 1)
    right = labels[similarity.topk(len(rank)).indices] == labels[queries, None]
    inside = right & (rank <= positives[:, None])
    return right[:, 0].float(), (right.cumsum(1) / rank * inside).sum(1) / positives


def extras(white: Tensor, mirrored: Tensor | None, labels: Tensor) -> Iterator[Row]:
    """What can be done with whitened embeddings, leave-one-out and with galleries of other images."""
    yield "whitened", scores(white, labels)
    if mirrored is not None:
        both = F.normalize(white, dim=1) + F.normalize(mirrored, dim=1)
        yield "flip averaging", scores(both, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    query, rest = order[: len(order) // 2], order[len(order) // 2 :]
    for name, gallery in (("all", rest), ("5 of each class", rest[few_per_class(labels[rest], 5, 0)])):
        z, own = white[gallery], labels[gallery]
        yield f"gallery of {name}", scores(white[query], labels[query], (z, own))
        for neighbors in (2, 5, 10):
            bigger = expand(z, neighbors=neighbors)
            for title, a, b in (
                ("query expansion", expand(white[query], z, neighbors=neighbors), z),
                ("database augmentation", white[query], bigger),
                ("both", expand(white[query], bigger, neighbors=neighbors), bigger),
            ):
                yield f"gallery of {name}: {title}, {neighbors}", scores(a, labels[query], (b, own))
    for reciprocal, smooth in ((20, 6), (10, 3)):
        positives = torch.bincount(labels)[labels] - 1
        found = rerank(white, k=int(positives.max()), depth=200, reciprocal=reciprocal, smooth=smooth).index
        yield f"re-ranked, {reciprocal}, {smooth}", _from_lists(found, labels, positives)
    yield "not re-ranked", _from_lists(knn(white, k=int(positives.max())).index, labels, positives)


def _from_lists(index: Tensor, labels: Tensor, positives: Tensor) -> dict[str, float]:
    rank = torch.arange(1, index.shape[1] + 1)
    right = labels[index] == labels[:, None]
    inside = right & (rank <= positives[:, None])
    precision = (right.cumsum(1) / rank * inside).sum(1) / positives
    return {"R@1": 100 * float(right[:, 0].double().mean()), "MAP@R": 100 * float(precision.mean())}


def measure(backbone: str, words: argparse.Namespace) -> dict[str, Any]:
    """All of one backbone."""
    found, mirrored = features("cub", backbone, words), flipped(backbone, words) if words.flip else None
    z, labels = found.z.float(), found.labels
    result: dict[str, dict[str, list[dict[str, float]]]] = {}

    def add(part: str, rows: Iterator[Row]) -> None:
        for name, row in rows:
            result.setdefault(part, {}).setdefault(name, []).append(row)
            print(backbone, part, name, row, flush=True)

    steps: tuple[Callable[..., Iterator[Row]], ...] = () if words.extras else (closed_form, corrected)
    for held in halves(labels):
        for part, number in (("all images", None), ("three per class", 3)):
            rows = (~held).nonzero().flatten()
            rows = rows if number is None else rows[few_per_class(labels[rows], number, 0)]
            for step in steps:
                add(part, step(z[rows], labels[rows], z[held], labels[held].unique(return_inverse=True)[1]))
        white = iaa.Whitening().fit(z[~held], labels[~held])
        again = None if mirrored is None else white.transform(mirrored[held])
        add("extras", extras(white.transform(z[held]), again, labels[held].unique(return_inverse=True)[1]))
    return {
        part: {
            name: {key: sum(turn[key] for turn in turns) / len(turns) for key in turns[0]}
            for name, turns in rows.items()
        }
        for part, rows in result.items()
    }


def page(result: dict[str, Any]) -> str:
    """The tables."""
    title = (__doc__ or "").strip().splitlines()[0]
    text = [f"# Held-out training classes\n\n{title} Commit {result['commit']}.\n"]
    for backbone, parts in result["backbones"].items():
        for part, rows in parts.items():
            text += [f"## {backbone}, {part}\n", "| | R@1 | MAP@R |", "|---|---|---|"]
            for name, row in rows.items():
                shrink = f" (shrink {row['shrink']:.2f})" if "shrink" in row else ""
                text.append(f"| {name}{shrink} | {row['R@1']:.2f} | {row['MAP@R']:.2f} |")
            text.append("")
    return "\n".join(text)


def main() -> None:
    """Measure, print, write."""
    parser = options(__doc__)
    parser.add_argument("--flip", action="store_true", help="flip averaging too, which needs another pass")
    parser.add_argument("--extras", action="store_true", help="only what is done with whitened embeddings")
    words = parser.parse_args()
    result = environment("torch", "scikit-learn", "timm")
    file = HERE / "held_out.json"
    before = json.loads(file.read_text())["backbones"] if file.exists() else {}
    found = {name: before.get(name, {}) | measure(name, words) for name in words.backbones}
    result["backbones"] = before | found
    write("held_out", result)
    (HERE / "held_out.md").write_text(page(result))


if __name__ == "__main__":
    main()
