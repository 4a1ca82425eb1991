"""Answers from a large gallery beside faiss itself: latency of single queries, batches, recall, ratios.

    python benchmarks/search.py                       # a million x 128, exact and ivf; 50,000 for hnsw
    python benchmarks/search.py --rows 20000          # a quick look

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
TOP, SINGLE, BATCH, THREADS = 10, 60, 256, 2


def gallery(rows: int, dim: int) -> tuple[Any, Any]:
    """Ten vectors of each class, classes in families of twelve as in `retrieval.py`; others of them ask."""
    from retrieval import vectors

    z, _ = vectors(rows + BATCH, rows // 10, dim, noise=1.0)
    return z[:rows], z[rows:]


def latency(contenders: dict[str, Callable[[Any], Any]], queries: Any) -> dict[str, dict[str, float]]:
    """Milliseconds of single queries, by turns; the middle one and the slowest but one in a hundred."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run(queries[:1])
    for row in range(min(SINGLE, len(queries))):
        turns = list(contenders.items())  # who comes second finds the query's part of an index in the cache
        for name, run in turns if row % 2 else reversed(turns):
            start = time.perf_counter()
            run(queries[row : row + 1])
            times[name].append(1000 * (time.perf_counter() - start))
    return {
        name: {"median_ms": sorted(found)[len(found) // 2], "p99_ms": sorted(found)[int(0.99 * len(found))]}
        for name, found in times.items()
    }


def batch(contenders: dict[str, Callable[[Any], Any]], queries: Any) -> dict[str, float]:
    from measurement import take_turns

    found = take_turns({name: lambda run=run: run(queries) for name, run in contenders.items()}, rounds=2)
    return {name: 1000 * seconds / len(queries) for name, seconds in found.items()}


def compare(kind: str, rows: int, dim: int) -> dict[str, Any]:
    """One kind of index as `Index` has it, and as faiss has it by itself, with the same parameters."""
    import torch

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
    single, many = latency(contenders, queries), batch(contenders, queries)
    return {
        "kind": kind,
        "rows": len(z),
        "dim": dim,
        "ready_seconds": ready,
        "single": single,
        "batch_ms_per_query": many,
        "same_answers": float((ours == theirs).double().mean()),
        "recall_at_10": index.recall(top=TOP),
        "times_faster_single": single["faiss"]["median_ms"] / single["iaa"]["median_ms"],
        "times_faster_batch": many["faiss"] / many["iaa"],
    }


def write_table(result: dict[str, Any], out: Path) -> None:
    lines = [
        "# Search benchmark",
        "",
        "Written by `python benchmarks/search.py`; the numbers are in `search.json`. The ten nearest by",
        f"cosine, single queries one at a time and {BATCH} at once, {THREADS} threads; `exact` beside",
        "faiss's IndexFlatIP, `ivf` and `hnsw` beside the same faiss index asked directly. Recall is the",
        "share of the true ten nearest that is found.",
        "",
        "| index | vectors | iaa, one query | faiss, one query | times faster | iaa, in a batch "
        "| faiss, in a batch | times faster | recall | made ready in |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        one, many = row["single"], row["batch_ms_per_query"]
        iaa, faiss = (f"{one[n]['median_ms']:.2f} ms (p99 {one[n]['p99_ms']:.2f})" for n in ("iaa", "faiss"))
        recall = f"{100 * row['recall_at_10']:.1f} %"
        lines.append(
            f"| {row['kind']} | {row['rows']:,} x {row['dim']} | {iaa} | {faiss} "
            f"| {row['times_faster_single']:.1f} | {many['iaa']:.2f} ms | {many['faiss']:.2f} ms "
            f"| {row['times_faster_batch']:.1f} | {recall} | {row['ready_seconds']:.1f} s |"
        )
    about = result["surroundings"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = about["machine"]
    load = f"load {result['load_average'][0]:.1f} before and {result['load_average'][1]:.1f} after"
    machine = f"{machine['cpu']}, {machine['cores']} cores, {load}"
    lines += ["", f"{machine}; {versions}; commit {about['commit']}."]
    out.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--out", type=Path, default=HERE / "search.json")
    args = parser.parse_args()
    from retrieval import choose_kernel

    choose_kernel()
    from measurement import environment

    small, load = min(args.rows, 50_000), os.getloadavg()[0]
    rows = [compare(kind, size, args.dim) for kind, size in (("exact", small), ("exact", args.rows))]
    rows += [compare("hnsw", small, args.dim), compare("ivf", args.rows, args.dim)]
    result = {"rows": rows, "load_average": [load, os.getloadavg()[0]]}
    result["surroundings"] = environment("torch", "faiss-cpu", "numpy")
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    write_table(result, args.out)


if __name__ == "__main__":
    main()
