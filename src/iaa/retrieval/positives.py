"""The positives of every query, best first, and how many strangers came before each of them."""

from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID, Points
from iaa.retrieval.threads import on_every_core

_LARGE = 24  # positives from which on a product per class is quicker than pairs
_SHIFT = 36  # room for a similarity on the grid below the query's number


def same_label(
    query_labels: Int64[Tensor, " q"], gallery_labels: Int64[Tensor, " n"]
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " q"], Int64[Tensor, " q"]]:
    """Gallery rows sorted by label; the first row of each query's label, and how many rows have it."""
    ordered, order = gallery_labels.sort(stable=True)
    first = torch.searchsorted(ordered, query_labels)
    return order, first, torch.searchsorted(ordered, query_labels, right=True) - first


@dataclass(frozen=True, eq=False)
class Items:
    """Queries or gallery items; one object for both means leave-one-out, where no query answers itself.

    A gallery item whose group is that of the query is ignored: the image itself, frames of one sequence.
    """

    points: Points
    labels: Int64[Tensor, " n"]
    groups: Int64[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def ignores(self, rows: Tensor, gallery: "Items", items: Tensor) -> Tensor:
        """Whether each of these queries ignores that gallery item; rows and items broadcast."""
        if self.groups is not None and gallery.groups is not None:
            return self.groups[rows] == gallery.groups[items]
        return rows == items if self is gallery else torch.zeros_like(rows * items, dtype=torch.bool)


def count_positives(query: Items, gallery: Items) -> Int64[Tensor, " q"]:
    """How many gallery items share the label of each query, without those it ignores."""
    count = same_label(query.labels, gallery.labels)[2]
    if query.groups is None or gallery.groups is None:
        return count - (1 if query is gallery else 0)
    labels = torch.cat([query.labels, gallery.labels])
    groups = torch.cat([query.groups, gallery.groups])
    numbers = torch.stack([labels, groups]).unique(dim=1, return_inverse=True)[1]
    return count - same_label(numbers[: len(query)], numbers[len(query) :])[2]


@dataclass
class Positives:
    """One flat list: the positives of query 0, best first, then those of query 1, …

    ``strangers[start + p]`` counts the negatives that beat this positive but not the one before it.
    """

    key: Int64[Tensor, " p"]
    item: Int64[Tensor, " p"]
    order: Int64[Tensor, " p"]
    """Query number and falling similarity as one rising integer: one binary search places a whole batch."""
    start: Int64[Tensor, " q_plus_1"]
    strangers: Int64[Tensor, " p"]

    @classmethod
    def find(
        cls,
        query: Items,
        gallery: Items,
        rows: Int64[Tensor, " q"],
        wanted: Bool[Tensor, " q"],
    ) -> "Positives":
        """List the positives of the wanted queries among ``rows``, without those the query ignores."""
        by_label, first, count = same_label(query.labels[rows], gallery.labels)
        count = count.where(wanted, 0)
        owner = torch.repeat_interleave(count)
        within = torch.arange(len(owner), device=owner.device) - (count.cumsum(0) - count)[owner]
        item = by_label[first[owner] + within]
        key = _keys(query.points, gallery.points, rows, owner, item, by_label, first, count)
        if query is gallery or query.groups is not None:
            counts = ~query.ignores(rows[owner], gallery, item)
            owner, item, key = owner[counts], item[counts], key[counts]
        order = (owner << _SHIFT) - key
        order, best_first = order.sort(stable=True)  # stable: equal similarity keeps the lower index first
        start = torch.searchsorted(owner, torch.arange(len(rows) + 1, device=owner.device))
        return cls(key[best_first], item[best_first], order, start, torch.zeros_like(order))

    def thresholds(self, first: int, last: int, depth: int) -> Tensor:
        """What a similarity must reach to change a metric of queries [first, last); inf if nothing can.

        A positive past position R counts neither for R-precision nor for MAP@R; the best one matters down to
        position ``depth``.
        """
        start = self.start[first : last + 1] - self.start[first]
        key, before = self._before(first, last)
        count = start.diff()
        position = torch.arange(len(key), device=key.device) - start[:-1].repeat_interleave(count)
        inside = position + 1 + before <= count.repeat_interleave(count)  # true for the first few, then false
        total = torch.cat([inside.new_zeros(1, dtype=torch.int64), inside.cumsum(0)])
        alive = total[start[1:]] - total[start[:-1]]
        has = count > 0
        best = start[:-1].clamp(max=max(len(key) - 1, 0))
        if not len(key):
            return torch.full((last - first,), torch.inf, device=key.device)
        reach = key[(best + alive - 1).clamp(min=0)].float() / GRID
        shallow = torch.where(before[best] < depth, key[best].float() / GRID, torch.inf)
        return torch.where(alive > 0, reach, shallow).where(has, torch.inf)

    def _before(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys of these queries' positives, and the number of strangers found before each."""
        low, high = int(self.start[first]), int(self.start[last])
        running = self.strangers[low:high].cumsum(0)
        start = self.start[first : last + 1] - low
        base = torch.cat([running.new_zeros(1), running])[start[:-1]]
        return self.key[low:high], running - base.repeat_interleave(start.diff())

    def ranks(self) -> tuple[Int64[Tensor, " p"], Int64[Tensor, " p"]]:
        """Rank of every positive (from 1) and its position among its query's positives (from 1)."""
        count = self.start.diff()
        position = torch.arange(1, len(self.key) + 1, device=self.key.device)
        position = position - self.start[:-1].repeat_interleave(count)
        return position + self._before(0, len(count))[1], position

    def position(
        self, owner: Int64[Tensor, " c"], key: Int64[Tensor, " c"], item: Int64[Tensor, " c"]
    ) -> Int64[Tensor, " c"]:
        """Where strangers fall in the flat list: after all better positives and equal ones of lower index."""
        target = (owner << _SHIFT) - key
        low, high = torch.searchsorted(self.order, target), torch.searchsorted(self.order, target, right=True)
        while bool((low < high).any()):  # binary search by index among those of equal similarity
            middle = (low + high) // 2
            lower = (low < high) & (self.item[middle.clamp(max=len(self.item) - 1)] < item)
            low, high = (
                torch.where(lower, middle + 1, low),
                torch.where(lower, high, torch.minimum(middle, high)),
            )
        return low

    def surely(
        self, owner: Int64[Tensor, " c"], key: Int64[Tensor, " c"], slack: int
    ) -> tuple[Int64[Tensor, " c"], Bool[Tensor, " c"]]:
        """Like ``position`` for keys known to within ``slack``, and whether that was enough to tell."""
        target = (owner << _SHIFT) - key
        at = torch.searchsorted(self.order, target - slack)
        end = len(self.order) - 1
        near = (at <= end) & (self.order[at.clamp(max=end)] <= target + slack)
        return at, ~near


def _keys(
    query: Points,
    gallery: Points,
    rows: Tensor,
    owner: Tensor,
    item: Tensor,
    by_label: Tensor,
    first: Tensor,
    count: Tensor,
) -> Tensor:
    """Similarity of every query to its positives: pairs in small classes, one product in large ones."""
    key = torch.zeros_like(item)
    end = count.cumsum(0)
    pairs = (count[owner] < _LARGE).nonzero()[:, 0]
    jobs = iter([(part, False) for part in pairs.split(2048)] + _by_class(first, count))
    lock = Lock()

    def work() -> None:
        while True:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            part, large = job
            if not large:
                key[part] = query.key(rows[owner[part]], gallery, item[part])
                continue
            size = int(count[part[0]])
            position = (end[part] - size)[:, None] + torch.arange(size, device=end.device)
            key[position] = query.keys(rows[part], gallery, by_label[first[part[0]] :][:size])

    on_every_core(work, query.device)
    return key


def _by_class(first: Tensor, count: Tensor) -> list[tuple[Tensor, bool]]:
    """The queries of each large class, some hundred at a time; those with the same start share a label."""
    large = (count >= _LARGE).nonzero()[:, 0]
    start, order = first[large].sort(stable=True)
    sizes = start.unique_consecutive(return_counts=True)[1].tolist()
    return (
        [(part, True) for one in large[order].split(sizes) for part in one.split(256)] if len(large) else []
    )
