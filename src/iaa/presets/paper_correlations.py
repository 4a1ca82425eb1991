"""The paper's Spearman coefficients of mean and covariance distances, as printed."""

Metrics = tuple[bool, bool]
"""Whether means are squared; whether variances are rooted."""

TABLE_I = """
p    | 1    2    3    4
cub  | 0.81 0.77 0.74 0.69
cars | 0.91 0.85 0.78 0.74
"""
TABLE_VIII = """
squared rooted p | cub  cars sop  inshop vehicleid
yes     no     1 | 0.71 0.70 0.65 0.71   0.59
yes     no     2 | 0.72 0.72 0.68 0.69   0.55
yes     no     3 | 0.69 0.71 0.56 0.66   0.53
no      no     1 | 0.66 0.64 0.60 0.64   0.52
no      no     2 | 0.67 0.62 0.63 0.66   0.54
no      no     3 | 0.65 0.60 0.61 0.65   0.51
yes     yes    1 | 0.66 0.59 0.53 0.56   0.50
yes     yes    2 | 0.68 0.64 0.55 0.58   0.48
yes     yes    3 | 0.67 0.65 0.54 0.59   0.45
no      yes    1 | 0.64 0.58 0.49 0.51   0.49
no      yes    2 | 0.65 0.57 0.53 0.55   0.51
no      yes    3 | 0.64 0.56 0.50 0.52   0.43
"""


def paper_correlations(data: str) -> dict[str, dict[Metrics, dict[int, float]]]:
    """The paper's coefficients for a dataset by table, metrics and p; empty if it has none.

    >>> paper_correlations("cub")["Table VIII"][True, False]
    {1: 0.71, 2: 0.72, 3: 0.69}
    """
    tables: dict[str, dict[Metrics, dict[int, float]]] = {}
    (_, powers), *rows = _split(TABLE_I)
    for (name,), values in rows:
        if name == data:
            tables["Table I"] = {(True, False): dict(zip(map(int, powers), map(float, values), strict=True))}
    (_, datasets), *rows = _split(TABLE_VIII)
    if data in datasets:
        table: dict[Metrics, dict[int, float]] = {}
        for (squared, rooted, p), values in rows:
            table.setdefault((squared == "yes", rooted == "yes"), {})[int(p)] = float(
                values[datasets.index(data)]
            )
        tables["Table VIII"] = table
    return tables


def _split(text: str) -> list[tuple[list[str], list[str]]]:
    parts = [line.partition("|") for line in text.strip().splitlines()]
    return [(left.split(), right.split()) for left, _, right in parts]
