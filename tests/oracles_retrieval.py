"""Retrieval as slow literal loops: what the paper's Section VI-B says, on the similarity grid."""

import math

GRID = 2**32


def similarity(x, y, distance, scale=1.0):
    if distance == "euclidean":
        return -sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) * scale / 2
    norms = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / norms if norms else 0.0


def ranking(query, gallery, *, own=None, distance="cosine", scale=1.0):
    """Gallery indices by falling similarity on the grid, ties by the lower index, without the own row."""
    keys = {}
    for j, y in enumerate(gallery):
        if j != own:
            keys[j] = round(similarity(query, y, distance, scale) * GRID)
    return sorted(keys, key=lambda j: (-keys[j], j))


def euclidean_scale(*sets):
    """One over twice the squared radius around the mean: brings half a squared distance into [0, 1]."""
    rows = [row for one in sets for row in one]
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    radius = max(sum((a - m) ** 2 for a, m in zip(row, mean, strict=True)) for row in rows)
    return 1 / (2 * radius) if radius else 1.0


def metrics(order, label, gallery_labels, ks):
    """R@K, RP and MAP@R of one query in percent, or None if it has no positive."""
    relevant = [gallery_labels[j] == label for j in order]
    total = sum(relevant)
    if total == 0:
        return None
    result = {}
    for k in ks:
        result[f"R@{k}"] = 100.0 if any(relevant[:k]) else 0.0
    result["RP"] = 100 * sum(relevant[:total]) / total
    summed = 0.0
    for place in range(1, total + 1):
        if relevant[place - 1]:
            summed += sum(relevant[:place]) / place
    result["MAP@R"] = 100 * summed / total
    return result


def score(z, labels, *, gallery=None, ks=(1,), distance="cosine"):
    """Per-query metrics (None where there is no positive) of leave-one-out or query/gallery retrieval."""
    z, labels = z.tolist(), labels.tolist()
    target, target_labels = (z, labels) if gallery is None else (gallery[0].tolist(), gallery[1].tolist())
    scale = euclidean_scale(z) if gallery is None else euclidean_scale(z, target)
    results = []
    for i, row in enumerate(z):
        order = ranking(row, target, own=i if gallery is None else None, distance=distance, scale=scale)
        results.append(metrics(order, labels[i], target_labels, ks))
    return results


def expanded(query, gallery, neighbors, alpha, *, own=None):
    """A query plus its nearest of the gallery, all of unit length, weighted by similarity ** alpha."""

    def unit(x):
        norm = math.sqrt(sum(a * a for a in x))
        return [a / norm for a in x]

    total = unit(query)
    for j in ranking(query, gallery, own=own)[:neighbors]:
        weight = max(similarity(query, gallery[j], "cosine"), 0.0) ** alpha
        total = [a + weight * b for a, b in zip(total, unit(gallery[j]), strict=True)]
    return unit(total)


def jaccard(rows, k1, k2):
    """Jaccard distances between the k-reciprocal neighbour sets of all rows, leave-one-out."""
    size = len(rows)
    order = [[i, *ranking(rows[i], rows, own=i)] for i in range(size)]

    def mutual(i, k):
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    vectors = []
    for i in range(size):
        own = mutual(i, k1)
        grown = set(own)
        for j in own:
            core = mutual(j, (k1 + 1) // 2)
            if len(core & own) > 2 / 3 * len(core):
                grown |= core
        weight = [
            math.exp(2 * similarity(rows[i], rows[j], "cosine") - 2) if j in grown else 0.0
            for j in range(size)
        ]
        vectors.append([w / sum(weight) for w in weight])
    smooth = []
    for i in range(size):
        friends = order[i][:k2]
        smooth.append([sum(vectors[f][j] for f in friends) / len(friends) for j in range(size)])
    distances = []
    for a in smooth:
        low = [sum(min(x, y) for x, y in zip(a, b, strict=True)) for b in smooth]
        distances.append([1 - m / (2 - m) for m in low])
    return distances
