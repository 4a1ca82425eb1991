"""Scores beside pytorch-metric-learning and faiss: ratios of times measured in one run, with their spread.

    python benchmarks/retrieval.py              # 1,000 to 60,502 vectors: some six minutes on two quiet cores
    python benchmarks/retrieval.py --million    # 1,000,000 x 128, exactly and by ivf: about half an hour
    python benchmarks/retrieval.py --quick      # does it run? small sets, written only with --out

Contenders take turns in one process, on the same vectors and threads; a ratio compares the same round.
Results go into `retrieval.json` beside this file, and from there into `retrieval.md`.

The OpenBLAS inside faiss's wheel does not know newer processors and then multiplies with the kernels of a
Prescott, several times slower. Nobody should win by that: every contender runs with the best kernel the
processor has, and the kernels in use are written down.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FEW, MANY = (1, 2, 4, 8), (1, 10, 100)
SHAPES = (  # rows, classes, dimensions, ks, rounds
    (1_000, 50, 512, FEW, 41),
    (2_000, 100, 512, FEW, 21),
    (5_924, 100, 512, FEW, 9),  # CUB's test set
    (8_000, 40, 512, FEW, 5),  # a few huge classes
    (10_000, 1_870, 512, MANY, 7),
    (60_502, 11_316, 128, MANY, 3),  # SOP's test set
    (60_502, 11_316, 512, MANY, 2),
)
QUICK = ((300, 30, 16, FEW, 2), (500, 100, 16, MANY, 2))


def vectors(rows: int, classes: int, dim: int = 512, noise: float = 3.5):
    """Classes in families of twelve: about 60 % R@1 at SOP's size, so neither hits nor misses are rare."""
    import torch

    seed = torch.Generator().manual_seed(0)
    if rows < 20 * classes:
        more = torch.randint(0, classes, (rows - 2 * classes,), generator=seed)
        labels = torch.cat([torch.arange(classes).repeat(2), more])
    else:  # large classes are of one size, as CUB's are
        labels = torch.arange(rows) % classes
    family = torch.randn(classes // 12 + 1, dim, generator=seed)
    centre = torch.randn(classes, dim, generator=seed) + 1.2 * family[torch.arange(classes) // 12]
    z = centre[labels] + noise * torch.randn(rows, dim, generator=seed)
    return torch.nn.functional.normalize(z, dim=1), labels


def run_iaa(z, labels, ks):
    import iaa

    return iaa.score(z, labels, ks=ks)


def run_pml(z, labels, ks):
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    names = {"precision_at_1": "R@1", "r_precision": "RP", "mean_average_precision_at_r": "MAP@R"}
    scores = AccuracyCalculator(include=tuple(names), k="max_bin_count").get_accuracy(z, labels)
    return {name: 100 * scores[theirs] for theirs, name in names.items()}


def run_faiss(z, labels, ks):
    """IndexFlat, self dropped by its identity, and the metrics in numpy."""
    import faiss
    import numpy as np

    x, y = z.numpy(), labels.numpy()
    total = np.bincount(y)[y] - 1
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    k = max(*ks, total.max())
    near = index.search(x, int(k) + 1)[1]
    own = near == np.arange(len(x))[:, None]
    own[:, -1] |= ~own.any(1)
    hit = y[near[~own].reshape(len(x), k)] == y[:, None]
    rank = np.arange(1, k + 1)
    inside = hit & (rank <= total[:, None])
    scores = {f"R@{top}": 100 * hit[:, :top].any(1).mean() for top in ks}
    scores["RP"] = 100 * (inside.sum(1) / total).mean()
    scores["MAP@R"] = 100 * ((inside * hit.cumsum(1) / rank).sum(1) / total).mean()
    return scores


CONTENDERS = {"iaa": run_iaa, "pml": run_pml, "faiss": run_faiss}


def compare(rows: int, classes: int, dim: int, ks: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """One size: seconds of all rounds, ratios to the rival that was faster, and peak memory."""
    from measurement import spread, timed_turns

    z, labels = vectors(rows, classes, dim)
    scores: dict[str, dict[str, float]] = {}
    memory: dict[str, float] = {}

    def turn(name: str) -> None:
        before = reset_peak()
        scores[name] = {metric: float(v) for metric, v in CONTENDERS[name](z, labels, ks).items()}
        memory[name] = max(memory.get(name, 0.0), peak() - before)

    for run in CONTENDERS.values():
        run(z[:200], labels[:200] % 40, FEW)  # imports and first calls
    turns = {name: lambda name=name: turn(name) for name in CONTENDERS}
    seconds = timed_turns(turns, rounds=1)
    rival, slower = sorted(("pml", "faiss"), key=lambda name: seconds[name][0])
    if seconds[slower][0] > 1.5 * seconds[rival][0]:
        del turns[slower]
    for name, more in timed_turns(turns, rounds=rounds - 1).items():
        seconds[name] += more
    for metric in ("R@1", "RP", "MAP@R"):  # the same work was done
        values = [found[metric] for found in scores.values()]
        assert max(values) - min(values) < 0.02, (metric, values)
    rival = min(turns.keys() - {"iaa"}, key=lambda name: min(seconds[name]))
    ratios = [theirs / ours for theirs, ours in zip(seconds[rival], seconds["iaa"], strict=True)]
    return {
        "rows": rows,
        "classes": classes,
        "dim": dim,
        "ks": ks,
        "seconds": seconds,
        "peak_mib": memory,
        "scores": scores,
        "faster_rival": rival,
        "times_faster": spread(ratios),
    }


def million(rows: int, classes: int, dim: int = 128, asked: int = 2_000) -> dict[str, Any]:
    """Every vector asks all others, exactly and by ivf; faiss's flat index is asked a sample of them."""
    import faiss

    import iaa
    from iaa.retrieval.embeddings import Embeddings

    z, labels = vectors(rows, classes, dim, noise=2.0)
    found: dict[str, Any] = {"rows": rows, "classes": classes, "dim": dim, "faiss_queries": asked}
    for kind in (None, "ivf"):
        before, start = reset_peak(), time.perf_counter()
        evaluation = iaa.evaluate(Embeddings(z, labels), split=None, index=kind)
        seconds = time.perf_counter() - start
        found[kind or "exact"] = {
            "seconds": seconds,
            "peak_mib": peak() - before,
            "scores": {name: float(value.mean()) for name, value in evaluation.values().items()},
            "recall": evaluation.result.index_recall,
            "error": evaluation.index_error(),
        }
        print(kind or "exact", f"{seconds:.0f} s", flush=True)
    flat = faiss.IndexFlatIP(dim)
    flat.add(z.numpy())
    start = time.perf_counter()
    flat.search(z[:asked].numpy(), int(labels.bincount().max()))
    found["faiss_seconds_for_all"] = (time.perf_counter() - start) * rows / asked
    return found


def reset_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def peak() -> float:
    from measurement import memory_held

    return memory_held(at_most=True) / 2**20


def page(result: dict[str, Any]) -> str:
    lines = [
        "# Retrieval benchmark",
        "",
        "Written by `python benchmarks/retrieval.py`; the numbers are in `retrieval.json`.",
        "",
        "R@K, RP and MAP@R of all vectors, leave-one-out; pytorch-metric-learning (PML) with its smallest k",
        "and R@1 alone; faiss as IndexFlat, metrics in numpy. Times are the shortest of all rounds; a rival",
        "1.5 times slower than the other in the first round sits out the rest. Times faster: iaa against the",
        "faster rival, round by round, middle (smallest to largest). Memory is the peak beyond the vectors.",
        "",
        "| vectors | classes | largest K | iaa | PML | faiss | times faster | rounds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result.get("sizes", []):
        cells = [f"{min(row['seconds'][n]):.2f} s, {row['peak_mib'][n]:,.0f} MiB" for n in CONTENDERS]
        ratio = row["times_faster"]
        lines.append(
            f"| {row['rows']:,} x {row['dim']} | {row['classes']:,} | {max(row['ks'])} | {' | '.join(cells)} "
            f"| {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}) "
            f"| {len(row['seconds']['iaa'])} |"
        )
    if "million" in result:
        lines += ["", *_million_lines(result["million"])]
    for name in ("sizes", "million"):
        if name in result:
            about = result["surroundings"][name]
            versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
            machine = f"{about['machine']['cpu']}, {about['machine']['cores']} cores"
            load = "load {:.1f} before and {:.1f} after".format(*about["load_average"])
            blas = ", ".join(about["blas"])
            lines += ["", f"{name}: {machine}, {load}; {versions}; {blas}; commit {about['commit']}."]
    return "\n".join(lines) + "\n"


def _million_lines(found: dict[str, Any]) -> list[str]:
    exact, ivf = found["exact"], found["ivf"]
    errors = ", ".join(
        f"{name} {off['mean']:+.2f} [{off['low']:+.2f}, {off['high']:+.2f}]"
        for name, off in ivf["error"].items()
    )
    return [
        f"{found['rows']:,} x {found['dim']}, every vector asking all others: "
        f"exact in {exact['seconds']:,.0f} s "
        f'({exact["peak_mib"]:,.0f} MiB beyond the vectors), by `index="ivf"` in {ivf["seconds"]:,.0f} s '
        f"({ivf['peak_mib']:,.0f} MiB; {100 * ivf['recall']:.1f} % of the true ten nearest). faiss's flat "
        f"index would take {found['faiss_seconds_for_all']:,.0f} s, from {found['faiss_queries']:,} queries.",
        "",
        f"What the scores of ivf are off by, told from a sample of its queries (95 %): {errors}.",
    ]


def choose_kernel() -> None:
    """Before any BLAS is loaded."""
    flags = Path("/proc/cpuinfo").read_text()
    kernel = "SkylakeX" if "avx512f" in flags else "Haswell" if "avx2" in flags else None
    if kernel:
        os.environ.setdefault("OPENBLAS_CORETYPE", kernel)


def kernels() -> list[str]:
    from threadpoolctl import threadpool_info

    return sorted(
        {
            f"{i['internal_api']} {i['version']} {i['architecture']}"
            for i in threadpool_info()
            if i.get("architecture")
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    choose_kernel()
    warnings.simplefilter("ignore")
    from measurement import environment

    load = os.getloadavg()[0]
    if args.million:
        name, found = "million", million(*((20_000, 2_000, 16) if args.quick else (1_000_000, 100_000)))
    else:
        name, found = "sizes", []
        for shape in QUICK if args.quick else SHAPES:
            found.append(compare(*shape))
            print(shape, found[-1]["faster_rival"], found[-1]["times_faster"], flush=True)
    out = args.out or (None if args.quick else HERE / "retrieval.json")
    result = json.loads(out.read_text()) if out and out.exists() else {"surroundings": {}}
    result[name] = found
    result["surroundings"][name] = environment("torch", "faiss-cpu", "pytorch-metric-learning", "numpy") | {
        "load_average": [load, os.getloadavg()[0]],
        "blas": kernels(),
    }
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")
        out.with_suffix(".md").write_text(page(result))
    else:
        print(page(result))


if __name__ == "__main__":
    main()
