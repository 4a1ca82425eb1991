"""Answers from a gallery beside faiss itself: single queries, batches, recall; ratios with their spread.

    python benchmarks/search.py              # 1,000 to 60,502 vectors
    python benchmarks/search.py --million    # 1,000,000 x 128, exact and ivf
    python benchmarks/search.py --quick      # does it run? a small set, written only with --out

Contenders take turns within one process, on the same vectors and the same number of threads; each single
query is timed by itself. Results go into `search.json` beside this file, and from there into `search.md`.
faiss's OpenBLAS multiplies with old kernels on processors it does not know: like every contender it runs
with the best kernel the processor has (see retrieval.py).
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOP, BATCH, ROUNDS, THREADS = 10, 256, 7, 2
SIZES = (("exact", "hnsw"), ((1_000, 128), (5_924, 512), (10_000, 128), (60_502, 128)))
MILLION = (("exact", "ivf"), ((1_000_000, 128),))
QUICK = (("exact", "hnsw", "ivf"), ((2_000, 8),))


def gallery(rows: int, dim: int) -> tuple[Any, Any]:
    """Ten vectors of each class, classes in families of twelve as in `retrieval.py`; others of them ask."""
    from retrieval import vectors

    z, _ = vectors(rows + BATCH, rows // 10, dim, noise=1.0)
    return z[:rows].clone(), z[rows:].clone()


def single(contenders: dict[str, Callable[[Any], Any]], queries: Any) -> dict[str, list[float]]:
    """The middle time in milliseconds of single queries, one number a round."""
    medians: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for row in range(min(60, len(queries))):
            turns = list(contenders.items())  # the second finds the query's part of an index in the cache
            for name, run in turns if row % 2 else reversed(turns):
                start = time.perf_counter()
                run(queries[row : row + 1])
                times[name].append(1000 * (time.perf_counter() - start))
        for name, found in times.items():
            medians[name].append(sorted(found)[len(found) // 2])
    return medians


def compare(kind: str, rows: int, dim: int) -> dict[str, Any]:
    """One kind of index as `Index` has it, and as faiss has it by itself, with the same parameters."""
    import torch
    from measurement import spread, timed_turns

    from iaa.retrieval.index import Index, build

    torch.set_num_threads(THREADS)
    z, queries = gallery(rows, dim)
    start = time.perf_counter()
    index = Index(z, kind=kind, effort=64)
    ready = time.perf_counter() - start
    bare = build(z, kind="flat") if kind == "exact" else index._faiss
    contenders = {
        "iaa": lambda asked: index.search(asked, top=TOP).index,
        "faiss": lambda asked: torch.from_numpy(bare.search(asked.numpy(), TOP)[1]),
    }
    ours, theirs = (run(queries) for run in contenders.values())
    one = single(contenders, queries)
    turns = {name: lambda run=run: run(queries) for name, run in contenders.items()}
    many = {
        name: [1000 * s / len(queries) for s in found]
        for name, found in timed_turns(turns, rounds=ROUNDS).items()
    }
    return {
        "kind": kind,
        "rows": rows,
        "dim": dim,
        "ready_seconds": ready,
        "single_ms": one,
        "batch_ms_per_query": many,
        "same_answers": float((ours == theirs).double().mean()),
        "recall_at_10": index.recall(top=TOP),
        "time_of_faiss": {
            name: spread(a / b for a, b in zip(found["iaa"], found["faiss"], strict=True))
            for name, found in (("single", one), ("batch", many))
        },
    }


def page(result: dict[str, Any]) -> str:
    lines = [
        "# Search benchmark",
        "",
        "Written by `python benchmarks/search.py`; the numbers are in `search.json`. The ten nearest by",
        f"cosine, single queries one at a time and {BATCH} at once, {THREADS} threads; `exact` beside",
        "faiss's IndexFlatIP, `ivf` and `hnsw` beside the same faiss index asked directly. Times are the",
        f"middle of {ROUNDS} rounds; iaa / faiss is their ratio, middle (smallest to largest) of the rounds,",
        "below 1 where iaa is faster. Recall is the share of the true ten nearest that is found.",
        "",
        "| index | vectors | iaa, one query | faiss, one query | iaa / faiss | iaa, in a batch "
        "| faiss, in a batch | iaa / faiss | recall | made ready in |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ("sizes", "million"):
        for row in result.get(name, []):
            cells = []
            for times, ratio in (("single_ms", "single"), ("batch_ms_per_query", "batch")):
                cells += [f"{sorted(row[times][who])[ROUNDS // 2]:.3f} ms" for who in ("iaa", "faiss")]
                spread = row["time_of_faiss"][ratio]
                cells.append(f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})")
            lines.append(
                f"| {row['kind']} | {row['rows']:,} x {row['dim']} | {' | '.join(cells)} "
                f"| {100 * row['recall_at_10']:.1f} % | {row['ready_seconds']:.1f} s |"
            )
    for name, about in result["surroundings"].items():
        versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
        load = "load {:.1f} before and {:.1f} after".format(*about["load_average"])
        machine = f"{about['machine']['cpu']}, {about['machine']['cores']} cores, {load}"
        lines += ["", f"{name}: {machine}; {versions}; commit {about['commit']}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    from retrieval import choose_kernel

    choose_kernel()
    from measurement import environment

    load = os.getloadavg()[0]
    kinds, sizes = QUICK if args.quick else MILLION if args.million else SIZES
    rows = [compare(kind, *size) for kind in kinds for size in sizes]
    out = args.out or (None if args.quick else HERE / "search.json")
    result = json.loads(out.read_text()) if out and out.exists() else {"surroundings": {}}
    name = "million" if args.million else "sizes"
    result[name] = rows
    result["surroundings"][name] = environment("torch", "faiss-cpu", "numpy") | {
        "load_average": [load, os.getloadavg()[0]]
    }
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")
        out.with_suffix(".md").write_text(page(result))
    else:
        print(page(result))


if __name__ == "__main__":
    main()
