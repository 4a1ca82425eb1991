"""Statistics of a distributed run: every rank ends with those of all ranks' samples, equal to the bit."""

from dataclasses import fields

import torch
import torch.distributed as dist
from torch import Tensor

from iaa.method.full_covariance import Samples
from iaa.method.gaussians import ClassStats
from iaa.method.within_class import WithinClass


def combine_stats(stats: ClassStats, group: dist.ProcessGroup | None = None) -> ClassStats:
    """The merged statistics of all ranks' disjoint samples, in the order of ranks.

    One rank's statistics travel at a time, so memory does not grow with the number of ranks; the result
    is rank 0's, so that different hardware cannot make ranks differ.
    """
    merged: ClassStats | None = None
    for rank in range(dist.get_world_size(group)):
        part = ClassStats(*(_from(rank, t, group) for t in (stats.count, stats.mean, stats.variance)))
        merged = part if merged is None else merged.merge(part)
    assert merged is not None  # a group has at least one rank
    return ClassStats(*(_from(0, t, group) for t in (merged.count, merged.mean, merged.variance)))


def combine_samples(samples: Samples, group: dist.ProcessGroup | None = None) -> Samples:
    """All ranks' samples, in the order of ranks."""
    sizes = [torch.tensor(len(samples.rows), device=samples.rows.device)] * dist.get_world_size(group)
    sizes = [_from(rank, size, group) for rank, size in enumerate(sizes)]
    whole = []
    for mine in (samples.rows, samples.labels, samples.weight):
        parts = []
        for rank, size in enumerate(sizes):
            here = dist.get_rank(group) == rank
            parts.append(_from(rank, mine if here else mine.new_empty((int(size), *mine.shape[1:])), group))
        whole.append(torch.cat(parts))
    return Samples(*whole)


def _from(rank: int, tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """That rank's tensor, on every rank."""
    tensor = tensor.contiguous().clone()
    source = rank if group is None else dist.get_global_rank(group, rank)
    dist.broadcast(tensor, src=source, group=group)
    return tensor


def combine_within(
    stats: WithinClass, exponent: Tensor, group: dist.ProcessGroup | None = None
) -> WithinClass:
    """The merged sums of all ranks' disjoint samples, in the order of ranks, which all took one exponent."""
    merged: WithinClass | None = None
    for rank in range(dist.get_world_size(group)):
        here = dist.get_rank(group) == rank
        if float(_from(rank, exponent, group)) != float(exponent):
            raise ValueError("power must apply on all ranks or on none: some saw negative features, some not")
        sizes = torch.tensor([len(stats.labels), len(stats.rows)], device=stats.labels.device)
        classes, rows = (int(size) for size in _from(rank, sizes, group))
        lengths = {"labels": classes, "count": classes, "mean": classes, "rows": rows, "row_labels": rows}
        parts = {}
        for field in fields(stats):
            mine: Tensor = getattr(stats, field.name)
            length = lengths.get(field.name, len(mine))
            parts[field.name] = _from(
                rank, mine if here else mine.new_empty((length, *mine.shape[1:])), group
            )
        part = WithinClass(**parts)
        merged = part if merged is None else merged.merge(part)
    assert merged is not None  # a group has at least one rank
    return merged
