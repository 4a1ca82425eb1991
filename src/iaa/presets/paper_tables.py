"""The numbers of the paper's tables, as printed.

The first cell of a block names its table, "-" is an empty cell. In ``SCORES`` and ``QUOTED`` a row is a loss,
on GoogLeNet unless it names a network, and a group of columns is a dataset with its metrics.
"""

from collections.abc import Iterator
from typing import NamedTuple

Numbers = dict[str, dict[str, float]]
"""Percent by test set (``test``; for vehicleid ``small``, ``medium``, ``large``) and metric."""
Metrics = tuple[bool, bool]
"""Whether means are squared; whether variances are rooted."""

SCORES = """
Table III         | cub R@1 R@2 R@4 | cars R@1 R@2 R@4
triplet           | 54.4 65.8 76.0  | 69.0 78.1 85.4
triplet + IAA     | 58.9 70.6 80.5  | 72.4 81.5 88.2
contrastive       | 57.3 68.6 79.5  | 74.1 82.8 89.0
contrastive + IAA | 61.7 73.3 82.2  | 80.8 87.9 92.8
ms                | 56.2 68.3 79.1  | 77.0 84.3 89.9
ms + IAA          | 62.1 73.8 82.7  | 84.2 90.4 94.3

Table III         | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20 | vehicleid/medium R@1 R@5
triplet           | 73.5 87.8 94.9     | 86.1 95.7 97.0       | 83.5 93.3
triplet + IAA     | 76.9 89.9 96.0     | 88.6 97.4 98.3       | 87.7 94.7
contrastive       | 75.0 88.3 95.2     | 86.5 96.0 97.3       | 87.9 94.9
contrastive + IAA | 77.8 90.2 96.1     | 88.8 97.3 98.2       | 91.6 95.9
ms                | 75.9 89.3 95.6     | 87.0 97.0 98.1       | 89.5 94.9
ms + IAA          | 78.6 91.0 96.5     | 89.3 97.8 98.6       | 92.2 96.2

Table IV              | cub R@1 R@2 R@4 | cars R@1 R@2 R@4 | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20
ms-bn-inception + IAA | 66.5 76.8 84.4  | 85.3 91.3 94.8   | 80.5 92.0 96.8     | 92.0 98.5 99.1
ms-resnet50 + IAA     | 68.5 78.4 86.4  | 88.6 93.1 95.8   | 82.8 93.2 97.1     | 93.3 98.6 99.2

Table V               | vehicleid/small R@1 R@5 | vehicleid/medium R@1 R@5 | vehicleid/large R@1 R@5
ms-bn-inception + IAA | 95.4 97.8               | 93.8 96.7                | 92.7 96.6
ms-resnet50 + IAA     | 95.7 97.9               | 94.3 97.0                | 93.6 96.9

Table VI          | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP | inshop MAP@R RP
triplet           | 20.6 31.4    | 19.4 30.2     | 45.8 49.0    | 60.2 63.2
triplet + IAA     | 21.5 32.5    | 22.6 33.4     | 48.8 52.0    | 63.1 66.0
contrastive       | 20.8 31.9    | 20.3 30.5     | 47.7 50.8    | 59.9 62.8
contrastive + IAA | 22.8 33.7    | 24.6 34.9     | 49.7 52.8    | 61.9 64.7
ms                | 20.5 31.6    | 22.0 32.7     | 48.0 51.2    | 60.8 63.8
ms + IAA          | 22.6 33.7    | 27.6 37.7     | 50.5 53.7    | 63.3 66.3

Table VII             | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP
ms-bn-inception + IAA | 25.5 36.5    | 29.2 39.3     | 54.6 57.6
ms-resnet50 + IAA     | 26.1 37.1    | 32.4 42.4     | 57.9 60.7

Table X                | cub R@1 | cars R@1
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
"""

QUOTED = """
Table IV                  | cub R@1 R@2 R@4 | cars R@1 R@2 R@4 | sop R@1 R@10 R@100 | inshop R@1 R@10 R@20
circle-bn-inception       | 66.7 77.4 86.2  | 83.4 89.8 94.1   | 78.3 90.5 96.1     | -
xbm-bn-inception          | 65.8 75.9 84.0  | 82.0 88.7 93.1   | 79.5 90.8 96.1     | 89.9 97.6 98.4
proxy-anchor-bn-inception | 68.4 79.2 86.8  | 86.1 91.7 95.0   | 79.1 90.8 96.2     | 91.5 98.1 98.8
fast-ap-resnet50          | -               | -                | 76.4 89.0 95.1     | 90.9 97.7 98.5

Table V          | vehicleid/small R@1 R@5 | vehicleid/medium R@1 R@5 | vehicleid/large R@1 R@5
ms-bn-inception  | 91.0 96.1               | 89.4 94.8                | 86.7 93.8
xbm-bn-inception | 94.6 96.9               | 93.4 96.0                | 93.0 96.1
fast-ap-resnet50 | 91.9 96.8               | 90.6 95.9                | 87.5 95.1

Table VII              | cub MAP@R RP | cars MAP@R RP | sop MAP@R RP
triplet-bn-inception   | 23.7 34.6    | 23.0 33.7     | 43.4 46.5
proxy-nca-bn-inception | 24.2 35.1    | 25.4 35.6     | 47.2 50.1
margin-bn-inception    | 23.1 34.0    | 24.2 34.8     | 41.8 44.9
fast-ap-bn-inception   | 23.5 34.2    | 23.1 33.6     | 43.6 46.6
ms-bn-inception        | 24.7 35.4    | 28.1 38.1     | 45.8 48.8
snr-bn-inception       | 25.8 36.6    | 25.0 35.2     | 44.5 47.4
"""
"""What the paper quotes from others, who trained by other recipes."""

ABLATIONS = """
Table III | cub  | cars | sop
baseline  | 54.4 | 69.0 | 73.5
gaussian  | 58.9 | 72.4 | 76.9
symmetry  | 55.0 | 69.7 | 68.5
expansion | 51.7 | 71.6 | 77.2

Table IX        | cub  | cars | sop  | inshop
baseline        | 54.4 | 69.0 | 73.9 | 86.3
identity        | 50.8 | 66.1 | 71.7 | 84.5
global          | 54.9 | 69.8 | 73.1 | 85.8
alpha-0         | 58.7 | 72.3 | 74.2 | 86.9
full            | 58.9 | 72.4 | -    | -
alpha-1         | -    | -    | 76.6 | 88.2
without-global  | -    | -    | 76.5 | 88.4
infinite-widths | -    | -    | 76.4 | 88.3
iaa             | -    | -    | 76.9 | 88.6

Table XI        | cub  | cars
baseline-all    | 54.4 | 69.0
uncorrected-3   | 55.5 | 70.3
corrected-3     | 56.7 | 71.8
uncorrected-5   | 55.8 | 70.6
corrected-5     | 57.2 | 71.8
uncorrected-7   | 55.9 | 70.9
corrected-7     | 57.1 | 71.9
uncorrected-all | 58.9 | 72.4
corrected-all   | 58.7 | 72.2

Table XII                 | cub  | cars
triplet-baseline          | 54.4 | 69.0
triplet-fixed             | 54.7 | 70.1
triplet-dynamic           | 58.9 | 72.4
contrastive-baseline      | 57.3 | 74.1
contrastive-fixed         | 55.9 | 74.8
contrastive-dynamic       | 61.7 | 80.8
multi_similarity-baseline | 56.2 | 77.0
multi_similarity-fixed    | 57.8 | 79.2
multi_similarity-dynamic  | 62.1 | 84.2
"""
"""Percent R@1 by arm and dataset; the paper's figures give no numbers."""

CORRELATIONS = """
Table I  | cub  | cars
yes no 1 | 0.81 | 0.91
yes no 2 | 0.77 | 0.85
yes no 3 | 0.74 | 0.78
yes no 4 | 0.69 | 0.74

Table VIII | cub  | cars | sop  | inshop | vehicleid
yes no  1  | 0.71 | 0.70 | 0.65 | 0.71   | 0.59
yes no  2  | 0.72 | 0.72 | 0.68 | 0.69   | 0.55
yes no  3  | 0.69 | 0.71 | 0.56 | 0.66   | 0.53
no  no  1  | 0.66 | 0.64 | 0.60 | 0.64   | 0.52
no  no  2  | 0.67 | 0.62 | 0.63 | 0.66   | 0.54
no  no  3  | 0.65 | 0.60 | 0.61 | 0.65   | 0.51
yes yes 1  | 0.66 | 0.59 | 0.53 | 0.56   | 0.50
yes yes 2  | 0.68 | 0.64 | 0.55 | 0.58   | 0.48
yes yes 3  | 0.67 | 0.65 | 0.54 | 0.59   | 0.45
no  yes 1  | 0.64 | 0.58 | 0.49 | 0.51   | 0.49
no  yes 2  | 0.65 | 0.57 | 0.53 | 0.55   | 0.51
no  yes 3  | 0.64 | 0.56 | 0.50 | 0.52   | 0.43
"""
"""Spearman coefficients: whether means are squared, whether variances are rooted, and p; by dataset."""


class Cell(NamedTuple):
    """The scores of one row on one dataset."""

    table: str
    row: str
    boosted: bool
    data: str
    test: str
    values: dict[str, float]


def cells(*, quoted: bool = False) -> Iterator[Cell]:
    """The paper's own scores, cell by cell, or those that it quotes."""
    for table, columns, rows in _blocks(QUOTED if quoted else SCORES):
        for name, *values in rows:
            for column, printed in zip(columns, values, strict=True):
                if printed != "-":
                    (data, _, test), metrics = column.split()[0].partition("/"), column.split()[1:]
                    scores = dict(zip(metrics, map(float, printed.split()), strict=True))
                    row, _, boosted = name.partition(" + ")
                    yield Cell(table, row, bool(boosted), data, test or "test", scores)


def numbers(wanted: str, text: str = ABLATIONS) -> dict[str, dict[str, float]]:
    """The numbers of a table by row and dataset: R@1 of the arms of an ablation.

    >>> numbers("Table XI")["corrected-5"]
    {'cub': 57.2, 'cars': 71.8}
    """
    return {
        row: {data: float(value) for data, value in zip(columns, values, strict=True) if value != "-"}
        for table, columns, rows in _blocks(text)
        for row, *values in rows
        if table == wanted
    }


def paper_correlations(data: str) -> dict[str, dict[Metrics, dict[int, float]]]:
    """The paper's coefficients for a dataset by table, metrics and p; empty if it has none.

    >>> paper_correlations("cub")["Table VIII"][True, False]
    {1: 0.71, 2: 0.72, 3: 0.69}
    """
    tables: dict[str, dict[Metrics, dict[int, float]]] = {}
    for table, _, _ in _blocks(CORRELATIONS):
        for row, values in numbers(table, CORRELATIONS).items():
            squared, rooted, p = row.split()
            if data in values:
                metrics = (squared == "yes", rooted == "yes")
                tables.setdefault(table, {}).setdefault(metrics, {})[int(p)] = values[data]
    return tables


def _blocks(text: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """The name, the head and the rows of every table."""
    for block in text.strip().split("\n\n"):
        (table, *columns), *rows = [[cell.strip() for cell in line.split("|")] for line in block.splitlines()]
        yield table, columns, rows
