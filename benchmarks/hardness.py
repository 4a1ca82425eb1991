"""How hard are synthetics? Frozen Lite0 vectors of CUB-200-2011's training classes, batch by batch.

python benchmarks/hardness.py [--cub DIR-OR-TAR]

How often the nearest negative of a sample is synthetic, and how far synthetic candidates are beside real
ones, for both kinds of covariance and several strengths. Writes hardness.json, which docs/results.md shows.
"""

from statistics import mean
from typing import Any, Literal

import torch
import torch.nn.functional as F
from measurement import environment, write
from studies import VECTORS, parser, prepare

import iaa
from iaa.data.sampler import BalancedSampler

STRENGTHS = (0.05, 0.2, 0.8)


def hardness(
    z: torch.Tensor, labels: torch.Tensor, covariance: Literal["diagonal", "full"], strength: float
) -> dict[str, float]:
    """Means over the batches of an epoch; distances between unit vectors, as losses see them."""
    torch.manual_seed(0)
    augment = iaa.IAA(int(labels.max()) + 1, z.shape[1], covariance=covariance, strength=strength)
    augment.fit(z, labels)
    batches = [
        _batch(augment, z[torch.as_tensor(rows)], labels[torch.as_tensor(rows)])
        for rows in BalancedSampler(labels.numpy(), classes=32, per_class=4, seed=0)
    ]
    return {key: mean(batch[key] for batch in batches) for key in batches[0]}


def _batch(augment: iaa.IAA, z: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    made, _ = augment(z, labels)
    real, made = F.normalize(z, dim=1), F.normalize(made, dim=1)
    to_real, to_made = torch.cdist(real, real), torch.cdist(real, made).unflatten(1, (-1, len(z)))
    positive = (labels[:, None] == labels).fill_diagonal_(False)  # own copies are none
    other = labels[:, None] != labels
    nearest = to_real.masked_fill(~other, torch.inf).amin(1)
    nearest_made = to_made.masked_fill(~other[:, None], torch.inf).amin((1, 2))
    return {
        "nearest negative is synthetic": (nearest_made < nearest).float().mean().item(),
        "positive": to_real[positive].mean().item(),
        "synthetic positive": to_made.transpose(1, 2)[positive].mean().item(),
        "nearest negative": nearest.mean().item(),
        "nearest synthetic negative": nearest_made.mean().item(),
    }


def main() -> None:
    words = parser(__doc__, ()).parse_args()
    prepare("cub-head", words.cub)
    file = iaa.Embeddings.load(VECTORS)
    rows = torch.tensor([split == "train" for split in file.split])
    z, labels = file.z[rows].float(), file.labels[rows].unique(return_inverse=True)[1]
    result: dict[str, Any] = {"rows": [], **environment("torch")}
    for covariance in ("diagonal", "full"):
        for strength in STRENGTHS:
            found = hardness(z, labels, covariance, strength)
            print(covariance, strength, {key: round(value, 3) for key, value in found.items()}, flush=True)
            result["rows"].append({"covariance": covariance, "strength": strength, **found})
    write("hardness", result)


if __name__ == "__main__":
    main()
