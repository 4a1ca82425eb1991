"""The paper's ablations and sweeps by name: each a list of arms that change fields of any configuration."""

from collections.abc import Sequence
from typing import Any

from iaa.analysis.experiments import Arm, Study
from iaa.errors import unknown
from iaa.presets.paper_tables import cells, numbers

ALWAYS = 10**9
"""So large that no class has more samples, and a kernel of this width weighs all alike."""
BASELINE = {"augment.copies": 0}
UNCORRECTED = {"augment.correction": False}
TRIPLET = "The paper's numbers are R@1 of the triplet loss."
EVERYONE = "corrected: all classes borrow, however many samples they have, as the paper's last row has it."


def find_study(name: str) -> Study:
    """An ablation by name.

    >>> [arm.name for arm in find_study("copies").arms]
    ['copies-0', 'copies-1', 'copies-2', 'copies-3', 'copies-4', 'copies-5']
    """
    if name not in STUDIES:
        raise unknown("the ablation", name, STUDIES)
    return STUDIES[name]


def _components() -> Study:
    printed = numbers("Table IX")
    changes: dict[str, dict[str, Any]] = {
        "baseline": BASELINE,
        "duplicates": {"augment.strength": 0.0},
        "identity": {"augment.covariance": "identity"},
        "global": {"augment.covariance": "global"},
        "alpha-0": UNCORRECTED,
        "full": {"augment.covariance": "full", **UNCORRECTED},
        "full-corrected": {"augment.covariance": "full"},
        "alpha-1": {"augment.falloff": 0.0, "augment.few": ALWAYS},
        "without-global": {"augment.global_share": 0.0},
        "infinite-widths": {"augment.mean_width": ALWAYS, "augment.cov_width": ALWAYS},
        "iaa": {},
    }
    arms = [
        Arm(name, fields, against="baseline" if fields != BASELINE else None, paper=printed.get(name, {}))
        for name, fields in changes.items()
    ]
    remarks = (
        TRIPLET,
        "alpha-0 is each class's own covariance, by default a diagonal: the paper's row 'Diagonal matrix' on "
        "CUB and Cars, its row 'α = 0' on SOP and In-shop. full is its row 'IAA' on CUB and "
        "Cars, which has no correction.",
        "duplicates: copies without noise, which the paper does not measure. What iaa gains over them is "
        "due to the noise; the rest comes from more pairs alone.",
    )
    return Study("components", "Degenerations of the covariance", "Table IX", None, tuple(arms), remarks)


def _few(
    name: str, title: str, axis: str, field: str, remarks: tuple[str, ...], *, baseline_each: bool
) -> Study:
    """N = 3, 5, 7 or all samples of a class, each with a baseline of its own or all against one."""
    printed = numbers("Table XI")
    arms = [] if baseline_each else [Arm("baseline-all", BASELINE, "baseline", paper=printed["baseline-all"])]
    for number in (3, 5, 7, None):
        size, x = ("all", None) if number is None else (str(number), float(number))
        few = {field: number} if number else {}
        kinds: list[tuple[str, dict[str, Any], str | None]] = [
            ("baseline", BASELINE, None),
            ("uncorrected", UNCORRECTED, f"baseline-{size if baseline_each else 'all'}"),
            ("corrected", {"augment.few": ALWAYS}, f"uncorrected-{size}"),
        ]
        for kind, fields, against in kinds if baseline_each else kinds[1:]:
            arm = f"{kind}-{size}"
            series = kind if number else f"{kind}, all"  # no number, so a line of its own across the figure
            arms.append(Arm(arm, {**few, **fields}, series, x, against, printed.get(arm, {})))
    return Study(name, title, "Table XI", axis, tuple(arms), remarks)


def _generation() -> Study:
    paper_scores = numbers("Table XII")
    arms = []
    for loss in ("triplet", "contrastive", "multi_similarity"):
        kinds: dict[str, dict[str, Any]] = {
            "baseline": BASELINE,
            "fixed": {"augment.around": "mean"},
            "dynamic": {"augment.around": "sample"},
        }
        for kind, fields in kinds.items():
            name, against = f"{loss}-{kind}", None if kind == "baseline" else f"{loss}-baseline"
            arms.append(Arm(name, {"loss": loss, **fields}, kind, None, against, paper_scores[name]))
    title = "Synthetics around the class mean (fixed) or around each sample (dynamic)"
    return Study("generation", title, "Table XII", None, tuple(arms))


def _losses() -> Study:
    paper_scores: dict[tuple[str, bool], dict[str, float]] = {}
    for cell in cells():
        if cell.table == "Table X":
            paper_scores.setdefault((cell.row, cell.boosted), {})[cell.data] = cell.values["R@1"]
    arms = []
    for row in dict.fromkeys(row for row, _ in paper_scores):
        loss = {"loss": row.replace("-", "_")}
        arms.append(Arm(f"{row}-baseline", {**loss, **BASELINE}, "baseline", paper=paper_scores[row, False]))
        arms.append(Arm(f"{row}-iaa", loss, "IAA", None, f"{row}-baseline", paper_scores[row, True]))
    return Study("losses", "Further losses without and with IAA", "Table X", None, tuple(arms))


def _generators() -> Study:
    printed = numbers("Table III")
    names = ("gaussian", "symmetry", "expansion", "proxy", "mixup", "residual", "spread")
    arms = [Arm("baseline", BASELINE, paper=printed["baseline"])]
    arms += [Arm("duplicates", {"augment.strength": 0.0}, against="baseline")]
    arms += [
        Arm(name, {"augment.generator": name}, against="baseline", paper=printed.get(name, {}))
        for name in names
    ]
    remarks = (
        TRIPLET + " Symm and EE are quoted there, trained by other recipes.",
        "Generators that train networks of their own (DVML, L2A, HDML, DAML) are missing, see docs.",
        "duplicates: copies without noise. strength acts on gaussian, residual and spread alone.",
    )
    return Study("generators", "Ways to make synthetics", "Table III", None, tuple(arms), remarks)


def _sweep(
    name: str, title: str, source: str, axis: str, key: str, values: Sequence[float], *, remark: str = ""
) -> Study:
    """One field over several values, against no copies."""
    arms = [Arm("baseline", BASELINE, "baseline")]
    arms += [Arm(f"{name}-{value:g}", {key: value}, "IAA", float(value), "baseline") for value in values]
    return Study(name, title, source, axis, tuple(arms), (remark,) if remark else ())


def _copies() -> Study:
    arms = [Arm("copies-0", {"augment.copies": 0}, "IAA", 0.0)]
    arms += [Arm(f"copies-{n}", {"augment.copies": n}, "IAA", float(n), "copies-0") for n in range(1, 6)]
    return Study("copies", "Number of synthetics", "Fig. 7a", "synthetics of each sample, M", tuple(arms))


def _dim() -> Study:
    arms = []
    for dim in (64, 128, 256, 512, 1024):
        arms.append(Arm(f"baseline-{dim}", {"network.dim": dim, **BASELINE}, "baseline", float(dim)))
        arms.append(Arm(f"iaa-{dim}", {"network.dim": dim}, "IAA", float(dim), f"baseline-{dim}"))
    return Study("dim", "Embedding dimensions", "Fig. 8", "dimensions of an embedding", tuple(arms))


BORROWS = (
    "It acts on classes of at most augment.few samples; where all are larger, every value gives the same."
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        _components(),
        _few(
            *("few-samples", "N samples of every class, with and without neighbour correction"),
            *("samples of a class, N", "split.per_class"),
            (
                TRIPLET,
                "Here both training and estimation have N samples of every class and no more. The paper "
                "trains on all samples and takes N for the covariances alone, as `iaa ablate few-estimates` "
                "does.",
                EVERYONE,
            ),
            baseline_each=True,
        ),
        _few(
            *("few-estimates", "Covariances from N samples of every class, trained on all"),
            *("samples estimated from, N", "augment.samples"),
            (TRIPLET, EVERYONE),
            baseline_each=False,
        ),
        _generation(),
        _losses(),
        _generators(),
        _sweep(
            *("strength", "Strength of the variations", "Fig. 6a", "share of the class's variance, λ"),
            *("augment.strength", (0.2, 0.4, 0.6, 0.8, 1.0, 1.5)),
        ),
        _sweep(
            *("neighbors", "Number of neighbour classes", "Fig. 6b", "classes that lend, K"),
            *("augment.neighbors", (1, 5, 10, 15, 20, 25, 30, 40)),
            remark=BORROWS,
        ),
        _copies(),
        _sweep(
            *("refresh", "How often statistics are taken", "Fig. 7b", "epochs between two passes"),
            *("augment.refresh_every", (1, 2, 4, 8, 16)),
        ),
        _sweep(
            *("falloff", "Fall of the weight of correction", "Fig. 9b", "falloff, β"),
            *("augment.falloff", (0.01, 0.05, 0.1, 0.5, 1.0)),
            remark=BORROWS,
        ),
        _dim(),
    )
}
