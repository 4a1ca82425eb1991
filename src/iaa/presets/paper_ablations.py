"""The paper's numbers for its ablations, standing as they are printed."""

# Percent R@1 as printed; "-" is an empty cell. Figures of the paper give no numbers.
TABLES = {
    "Table III": """
              | cub  | cars | sop
    baseline  | 54.4 | 69.0 | 73.5
    gaussian  | 58.9 | 72.4 | 76.9
    symmetry  | 55.0 | 69.7 | 68.5
    expansion | 51.7 | 71.6 | 77.2
    """,
    "Table IX": """
                    | cub  | cars | sop  | inshop
    baseline        | 54.4 | 69.0 | 73.9 | 86.3
    identity        | 50.8 | 66.1 | 71.7 | 84.5
    global          | 54.9 | 69.8 | 73.1 | 85.8
    alpha-0         | 58.7 | 72.3 | 74.2 | 86.9
    full            | 58.9 | 72.4 | -    | -
    alpha-1         | -    | -    | 76.6 | 88.2
    without-global  | -    | -    | 76.5 | 88.4
    infinite-widths | -    | -    | 76.4 | 88.3
    iaa             | -    | -    | 76.9 | 88.6
    """,
    "Table XI": """
                    | cub  | cars
    baseline-all    | 54.4 | 69.0
    uncorrected-3   | 55.5 | 70.3
    corrected-3     | 56.7 | 71.8
    uncorrected-5   | 55.8 | 70.6
    corrected-5     | 57.2 | 71.8
    uncorrected-7   | 55.9 | 70.9
    corrected-7     | 57.1 | 71.9
    uncorrected-all | 58.9 | 72.4
    corrected-all   | 58.7 | 72.2
    """,
    "Table XII": """
                              | cub  | cars
    triplet-baseline          | 54.4 | 69.0
    triplet-fixed             | 54.7 | 70.1
    triplet-dynamic           | 58.9 | 72.4
    contrastive-baseline      | 57.3 | 74.1
    contrastive-fixed         | 55.9 | 74.8
    contrastive-dynamic       | 61.7 | 80.8
    multi_similarity-baseline | 56.2 | 77.0
    multi_similarity-fixed    | 57.8 | 79.2
    multi_similarity-dynamic  | 62.1 | 84.2
    """,
}


def numbers(table: str) -> dict[str, dict[str, float]]:
    """The paper's R@1 by arm and dataset.

    >>> numbers("Table XI")["corrected-5"]
    {'cub': 57.2, 'cars': 71.8}
    """
    head, *rows = [
        [cell.strip() for cell in line.split("|")] for line in TABLES[table].strip("\n ").splitlines()
    ]
    return {
        name: {data: float(value) for data, value in zip(head[1:], values, strict=True) if value != "-"}
        for name, *values in rows
    }
