"""Each equation of the paper as slow, literal loops in float64: what the fast code is tested against."""

import math

import torch
from torch import Tensor


def distance(a: Tensor, b: Tensor) -> Tensor:  # Eq. 1, on the unit sphere
    return (a / a.norm() - b / b.norm()).norm()


def similarity(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


def estimate(z: Tensor, labels: Tensor, num_classes: int) -> tuple[list[int], Tensor, Tensor]:
    """Counts, means (Eq. 7) and full covariances (Eq. 8)."""
    z = z.double()
    dim = z.shape[1]
    count = [0] * num_classes
    mean = torch.zeros(num_classes, dim, dtype=torch.double)
    covariance = torch.zeros(num_classes, dim, dim, dtype=torch.double)
    for k in range(num_classes):
        members = [z[i] for i in range(len(z)) if labels[i] == k]
        count[k] = len(members)
        if not members:
            continue
        for member in members:
            mean[k] += member / len(members)  # Eq. 7
        for member in members:
            gap = member - mean[k]
            covariance[k] += torch.outer(gap, gap) / len(members)  # Eq. 8
    return count, mean, covariance


def mean_distance(mean: Tensor, i: int, j: int, p: float = 2, squared: bool = True) -> float:
    total = 0.0
    for a, b in zip(mean[i].tolist(), mean[j].tolist(), strict=True):
        total += abs(a**2 - b**2 if squared else a - b) ** p  # Eq. 9
    return total ** (1 / p)


def cov_distance(variance: Tensor, i: int, j: int, p: float = 2, root: bool = False) -> float:
    total = 0.0
    for a, b in zip(variance[i].tolist(), variance[j].tolist(), strict=True):
        total += abs(math.sqrt(a) - math.sqrt(b) if root else a - b) ** p  # Eq. 10
    return total ** (1 / p)


def correction_weight(n: float, falloff: float = 0.1, few: float = 40) -> float:
    return 1 / (1 + math.log(1 + falloff * (n - 1))) if n <= few else 0.0  # Eq. 16


def minmax(value: float, values: list[float]) -> float:
    low, high = min(values), max(values)
    return 0.0 if high == low else (value - low) / (high - low)


def correct(
    count: list[int],
    mean: Tensor,
    covariance: Tensor,
    *,
    neighbors: int = 25,
    mean_width: float = 1.0,
    cov_width: float = 1.0,
    global_share: float = 0.1,
    falloff: float = 0.1,
    few: float = 40,
    scale: str | None = "minmax",
) -> Tensor:
    """Corrected full covariances (Eq. 11-16); distances and weights use their diagonals, as in the paper."""
    classes = range(len(count))
    variance = torch.stack([c.diagonal() for c in covariance])
    overall = sum((count[k] * covariance[k] for k in classes), torch.zeros_like(covariance[0])) / sum(
        count
    )  # Eq. 14
    corrected = covariance.clone()
    for k in classes:
        alpha = correction_weight(max(count[k], 1), falloff, few)  # Eq. 16
        if count[k] > few or alpha == 0:
            continue
        possible = [i for i in classes if i != k and count[i] >= 2] if count[k] > 0 else []
        d_mean = {i: mean_distance(mean, i, k) for i in possible}
        d_cov = {i: cov_distance(variance, i, k) for i in possible}
        nearest = sorted(possible, key=lambda i: (d_mean[i], i))[:neighbors]  # Eq. 11
        if scale == "minmax":
            all_mean, all_cov = list(d_mean.values()), list(d_cov.values())
            d_mean = {i: minmax(d, all_mean) for i, d in d_mean.items()}
            d_cov = {i: minmax(d, all_cov) for i, d in d_cov.items()}
        borrowed = overall
        if nearest:
            weights = {}
            for i in nearest:
                exponent = -(d_mean[i] ** 2) / (2 * mean_width**2) - d_cov[i] ** 2 / (2 * cov_width**2)
                weights[i] = count[i] * math.exp(exponent)  # Eq. 13
            total = sum(weights.values())
            borrowed = (
                sum((weights[i] * covariance[i] for i in nearest), torch.zeros_like(overall)) / total
            )  # Eq. 12
        corrected[k] = (1 - alpha) * covariance[k] + alpha * (
            (1 - global_share) * borrowed + global_share * overall
        )  # Eq. 15
    return corrected


def candidates(
    z: Tensor, labels: Tensor, synthetic: Tensor | None, *, own_copies: bool = False
) -> tuple[Tensor, list[list[int]], list[list[int]]]:
    """All candidates, and the positives and negatives of each anchor among them (Sec. IV-D).

    Candidates are the originals, then all first copies, then all second ones. A sample is no positive of
    itself, nor are its own copies unless ``own_copies``.
    """
    n = len(z)
    everything = z if synthetic is None else torch.cat([z, synthetic])
    positives: list[list[int]] = []
    negatives: list[list[int]] = []
    for i in range(n):
        positives.append([])
        negatives.append([])
        for j in range(len(everything)):
            if labels[j % n] != labels[i]:
                negatives[i].append(j)
            elif j != i and (j % n != i or own_copies):
                positives[i].append(j)
    return everything, positives, negatives


def contrastive(
    z: Tensor,
    labels: Tensor,
    synthetic: Tensor | None = None,
    *,
    near: float = 0.0,
    far: float = 1.0,
    **kw: bool,
) -> Tensor:
    everything, positives, negatives = candidates(z, labels, synthetic, **kw)
    total = z.new_zeros(())
    for i in range(len(z)):
        for j in positives[i]:
            total = total + (distance(z[i], everything[j]) - near).clamp(min=0)
        for k in negatives[i]:
            total = total + (far - distance(z[i], everything[k])).clamp(min=0)
    return total / len(z)  # Eq. 2, and Eq. 18 with synthetics


def triplet(
    z: Tensor, labels: Tensor, synthetic: Tensor | None = None, *, margin: float = 0.2, **kw: bool
) -> Tensor:
    everything, positives, negatives = candidates(z, labels, synthetic, **kw)
    total = z.new_zeros(())
    for i in range(len(z)):
        if not negatives[i]:
            continue
        hardest = min(distance(z[i], everything[k]) for k in negatives[i])
        for j in positives[i]:
            total = total + (distance(z[i], everything[j]) - hardest + margin).clamp(min=0)
    return total / len(z)  # Eq. 3, and Eq. 19 with synthetics


def multi_similarity(
    z: Tensor,
    labels: Tensor,
    synthetic: Tensor | None = None,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float = 0.1,
    **kw: bool,
) -> Tensor:
    everything, positives, negatives = candidates(z, labels, synthetic, **kw)
    total = z.new_zeros(())
    for i in range(len(z)):
        if not positives[i] or not negatives[i]:
            continue
        to_positive = {j: similarity(z[i], everything[j]) for j in positives[i]}
        to_negative = {k: similarity(z[i], everything[k]) for k in negatives[i]}
        hard_negative = [s for s in to_negative.values() if s > min(to_positive.values()) - epsilon]  # Eq. 5
        hard_positive = [s for s in to_positive.values() if s < max(to_negative.values()) + epsilon]  # Eq. 6
        pulled = sum((torch.exp(alpha * (base - s)) for s in hard_positive), z.new_zeros(()))
        pushed = sum((torch.exp(beta * (s - base)) for s in hard_negative), z.new_zeros(()))
        total = total + torch.log(1 + pulled) / alpha + torch.log(1 + pushed) / beta
    return total / len(z)  # Eq. 4, and Eq. 20 with synthetics


def triplets(z: Tensor, everything: Tensor, chosen: list[tuple[int, int, int]], margin: float) -> Tensor:
    """The triplet loss over triplets that a random miner chose (Eq. 3)."""
    total = z.new_zeros(())
    for i, j, k in chosen:
        gap = distance(z[i], everything[j]) - distance(z[i], everything[k])
        total = total + (gap + margin).clamp(min=0)
    return total / len(z)


def margin(
    z: Tensor, everything: Tensor, chosen: list[tuple[int, int, int]], margin: float, boundary: float
) -> Tensor:
    """Margin loss over triplets that a random miner chose: both distances against one boundary."""
    total = z.new_zeros(())
    for i, j, k in chosen:
        total = total + (distance(z[i], everything[j]) - boundary + margin).clamp(min=0)
        total = total + (boundary - distance(z[i], everything[k]) + margin).clamp(min=0)
    return total / len(z)


def circle(
    z: Tensor,
    labels: Tensor,
    synthetic: Tensor | None = None,
    *,
    m: float = 0.4,
    gamma: float = 80.0,
    **kw: bool,
) -> Tensor:
    everything, positives, negatives = candidates(z, labels, synthetic, **kw)
    total = z.new_zeros(())
    for i in range(len(z)):
        if not positives[i] or not negatives[i]:
            continue
        pulled, pushed = z.new_zeros(()), z.new_zeros(())
        for j in positives[i]:
            s = similarity(z[i], everything[j])
            pulled = pulled + torch.exp(-gamma * (1 + m - s.detach()).clamp(min=0) * (s - 1 + m))
        for k in negatives[i]:
            s = similarity(z[i], everything[k])
            pushed = pushed + torch.exp(gamma * (s.detach() + m).clamp(min=0) * (s - m))
        total = total + torch.log(1 + pulled * pushed)
    return total / len(z)


def norm_softmax(z: Tensor, labels: Tensor, proxies: Tensor, temperature: float) -> Tensor:
    total = z.new_zeros(())
    for i in range(len(z)):
        logits = [similarity(z[i], proxy) / temperature for proxy in proxies]
        total = total - torch.log(torch.exp(logits[labels[i]]) / sum(torch.exp(s) for s in logits))
    return total / len(z)


def proxy_nca(z: Tensor, labels: Tensor, proxies: Tensor, scale: float) -> Tensor:
    total = z.new_zeros(())
    for i in range(len(z)):
        logits = [-scale * distance(z[i], proxy) ** 2 for proxy in proxies]
        total = total - torch.log(torch.exp(logits[labels[i]]) / sum(torch.exp(s) for s in logits))
    return total / len(z)


def soft_triple(
    z: Tensor, labels: Tensor, centers: Tensor, *, scale: float, gamma: float, margin: float
) -> Tensor:
    """``centers`` (C, J, D): each class has several, of which a sample softly chooses."""
    total = z.new_zeros(())
    for i in range(len(z)):
        logits = []
        for c, of_class in enumerate(centers):
            s = torch.stack([similarity(z[i], center) for center in of_class])
            relaxed = ((s / gamma).softmax(0) * s).sum()
            logits.append(scale * (relaxed - (margin if c == labels[i] else 0.0)))
        total = total - torch.log(torch.exp(logits[labels[i]]) / sum(torch.exp(s) for s in logits))
    return total / len(z)


def within_covariance(z: Tensor, labels: Tensor) -> Tensor:
    """Eq. 14 with full covariances, over classes of two samples or more."""
    classes = [label for label in set(labels.tolist()) if (labels == label).sum() > 1]
    total, samples = torch.zeros(z.shape[1], z.shape[1], dtype=torch.double), 0
    for label in classes:
        members = [z[i].double() for i in range(len(z)) if labels[i] == label]
        mean = sum(members, torch.zeros(z.shape[1], dtype=torch.double)) / len(members)
        covariance = torch.zeros_like(total)
        for member in members:
            for a in range(z.shape[1]):
                for b in range(z.shape[1]):
                    covariance[a, b] += (member[a] - mean[a]) * (member[b] - mean[b]) / len(members)
        total, samples = total + len(members) * covariance, samples + len(members)
    return total / samples


def whiten(z: Tensor, labels: Tensor, shrink: float, power: float = 1.0) -> Tensor:
    """Centred embeddings times the inverse square root of the shrunk Eq. 14."""
    rows = z.double().clone()
    for i in range(rows.shape[0]):
        for a in range(rows.shape[1]):
            value = float(rows[i, a])
            rows[i, a] = math.copysign(abs(value) ** power, value)
    covariance, dim = within_covariance(rows, labels), rows.shape[1]
    variance = sum(float(covariance[a, a]) for a in range(dim)) / dim
    for a in range(dim):
        for b in range(dim):
            covariance[a, b] = (1 - shrink) * covariance[a, b] + (shrink * variance if a == b else 0.0)
    root = inverse_square_root(covariance)
    mean = sum(rows, torch.zeros(dim, dtype=torch.double)) / len(rows)
    return torch.stack([root @ (row - mean) for row in rows])


def inverse_square_root(matrix: Tensor) -> Tensor:
    """By the iteration of Denman and Beavers: Y goes to the square root, Z to its inverse."""
    y, z = matrix.clone(), torch.eye(len(matrix), dtype=matrix.dtype)
    for _ in range(60):
        y, z = (y + torch.linalg.inv(z)) / 2, (z + torch.linalg.inv(y)) / 2
    return z
