"""The numbers of the paper's tables, as printed.

A row is a loss, on GoogLeNet unless it names a network; a group of columns is a dataset. In ``QUOTED`` stand
numbers that the paper quotes from others, who trained by other recipes.
"""

from collections.abc import Iterator
from typing import NamedTuple

Numbers = dict[str, dict[str, float]]
"""Percent by test set (``test``; for vehicleid ``small``, ``medium``, ``large``) and metric."""

TABLES = [
    (
        "Table III",
        """
                      | cub R@1 R@2 R@4 | cars R@1 R@2 R@4
    triplet           | 54.4 65.8 76.0  | 69.0 78.1 85.4
    triplet + IAA     | 58.9 70.6 80.5  | 72.4 81.5 88.2
    contrastive       | 57.3 68.6 79.5  | 74.1 82.8 89.0
    contrastive + IAA | 61.7 73.3 82.2  | 80.8 87.9 92.8
    ms                | 56.2 68.3 79.1  | 77.0 84.3 89.9
    ms + IAA          | 62.1 73.8 82.7  | 84.2 90.4 94.3
    """,
    ),
    (
        "Table III",
        """
                      | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20 | vehicleid/medium R@1 R@5
    triplet           | 73.5 87.8 94.9     | 86.1 95.7 97.0       | 83.5 93.3
    triplet + IAA     | 76.9 89.9 96.0     | 88.6 97.4 98.3       | 87.7 94.7
    contrastive       | 75.0 88.3 95.2     | 86.5 96.0 97.3       | 87.9 94.9
    contrastive + IAA | 77.8 90.2 96.1     | 88.8 97.3 98.2       | 91.6 95.9
    ms                | 75.9 89.3 95.6     | 87.0 97.0 98.1       | 89.5 94.9
    ms + IAA          | 78.6 91.0 96.5     | 89.3 97.8 98.6       | 92.2 96.2
    """,
    ),
    (
        "Table IV",
        """
                          | cub R@1 R@2 R@4 | cars R@1 R@2 R@4 | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20
    ms-bn-inception + IAA | 66.5 76.8 84.4  | 85.3 91.3 94.8   | 80.5 92.0 96.8     | 92.0 98.5 99.1
    ms-resnet50 + IAA     | 68.5 78.4 86.4  | 88.6 93.1 95.8   | 82.8 93.2 97.1     | 93.3 98.6 99.2
    """,
    ),
    (
        "Table V",
        """
                          | vehicleid/small R@1 R@5 | vehicleid/medium R@1 R@5 | vehicleid/large R@1 R@5
    ms-bn-inception + IAA | 95.4 97.8               | 93.8 96.7                | 92.7 96.6
    ms-resnet50 + IAA     | 95.7 97.9               | 94.3 97.0                | 93.6 96.9
    """,
    ),
    (
        "Table VI",
        """
                      | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP | inshop MAP@R RP
    triplet           | 20.6 31.4    | 19.4 30.2     | 45.8 49.0    | 60.2 63.2
    triplet + IAA     | 21.5 32.5    | 22.6 33.4     | 48.8 52.0    | 63.1 66.0
    contrastive       | 20.8 31.9    | 20.3 30.5     | 47.7 50.8    | 59.9 62.8
    contrastive + IAA | 22.8 33.7    | 24.6 34.9     | 49.7 52.8    | 61.9 64.7
    ms                | 20.5 31.6    | 22.0 32.7     | 48.0 51.2    | 60.8 63.8
    ms + IAA          | 22.6 33.7    | 27.6 37.7     | 50.5 53.7    | 63.3 66.3
    """,
    ),
    (
        "Table VII",
        """
                          | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP
    ms-bn-inception + IAA | 25.5 36.5    | 29.2 39.3     | 54.6 57.6
    ms-resnet50 + IAA     | 26.1 37.1    | 32.4 42.4     | 57.9 60.7
    """,
    ),
    (
        "Table X",
        """
                           | cub R@1 | cars R@1
    triplet-distance       | 57.7    | 78.2
    triplet-distance + IAA | 59.8    | 80.8
    margin                 | 57.5    | 75.4
    margin + IAA           | 59.3    | 77.6
    circle                 | 60.5    | 80.8
    circle + IAA           | 60.9    | 81.0
    norm-softmax           | 60.1    | 80.4
    norm-softmax + IAA     | 61.3    | 81.8
    proxy-nca              | 60.5    | 81.0
    proxy-nca + IAA        | 61.0    | 82.1
    soft-triple            | 61.0    | 82.6
    soft-triple + IAA      | 61.5    | 82.8
    """,
    ),
]

QUOTED = [
    (
        "Table IV",
        """
                              | cub R@1 R@2 R@4 | cars R@1 R@2 R@4 | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20
    circle-bn-inception       | 66.7 77.4 86.2  | 83.4 89.8 94.1   | 78.3 90.5 96.1     | -
    xbm-bn-inception          | 65.8 75.9 84.0  | 82.0 88.7 93.1   | 79.5 90.8 96.1     | 89.9 97.6 98.4
    proxy-anchor-bn-inception | 68.4 79.2 86.8  | 86.1 91.7 95.0   | 79.1 90.8 96.2     | 91.5 98.1 98.8
    fast-ap-resnet50          | -               | -                | 76.4 89.0 95.1     | 90.9 97.7 98.5
    """,
    ),
    (
        "Table V",
        """
                     | vehicleid/small R@1 R@5 | vehicleid/medium R@1 R@5 | vehicleid/large R@1 R@5
    ms-bn-inception  | 91.0 96.1               | 89.4 94.8                | 86.7 93.8
    xbm-bn-inception | 94.6 96.9               | 93.4 96.0                | 93.0 96.1
    fast-ap-resnet50 | 91.9 96.8               | 90.6 95.9                | 87.5 95.1
    """,
    ),
    (
        "Table VII",
        """
                           | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP
    triplet-bn-inception   | 23.7 34.6    | 23.0 33.7     | 43.4 46.5
    proxy-nca-bn-inception | 24.2 35.1    | 25.4 35.6     | 47.2 50.1
    margin-bn-inception    | 23.1 34.0    | 24.2 34.8     | 41.8 44.9
    fast-ap-bn-inception   | 23.5 34.2    | 23.1 33.6     | 43.6 46.6
    ms-bn-inception        | 24.7 35.4    | 28.1 38.1     | 45.8 48.8
    snr-bn-inception       | 25.8 36.6    | 25.0 35.2     | 44.5 47.4
    """,
    ),
]


class Cell(NamedTuple):
    """The scores of one row on one dataset."""

    table: str
    row: str
    boosted: bool
    data: str
    test: str
    values: dict[str, float]


def cells(*, quoted: bool = False) -> Iterator[Cell]:
    """The paper's own rows, cell by cell, or those that it quotes."""
    for table, text in QUOTED if quoted else TABLES:
        lines = text.strip("\n ").splitlines()
        head, *rows = [[group.split() for group in line.split("|")] for line in lines]
        for (row, *mark), *groups in rows:
            for (column, *metrics), values in zip(head[1:], groups, strict=True):
                if values == ["-"]:
                    continue
                data, _, test = column.partition("/")
                scores = dict(zip(metrics, map(float, values), strict=True))
                yield Cell(table, row, bool(mark), data, test or "test", scores)
