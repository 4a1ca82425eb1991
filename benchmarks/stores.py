"""A gallery in a local file beside one in Milvus Lite: fill rate, opening, latency, recall, memory.

    python benchmarks/stores.py                     # a million x 128
    python benchmarks/stores.py --rows 100000       # a quick look

Each store is measured in a fresh process on the same vectors; rows go in as `iaa gallery import` brings them
in. Results go into `stores.json` beside this file, and from there into `stores.md`.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TOP, SINGLE, CHUNK, CLASSES = 10, 20, 8192, 1000
STORES = {"file": None, "milvus flat": "flat", "milvus ivf": "ivf", "milvus hnsw": "hnsw"}
"""Contenders: the local file (exact), and Milvus Lite with an index."""


def chunks(rows: int, dim: int) -> Iterator[tuple[list[str], Any]]:
    """Vectors around class centres, the same in every process."""
    import torch

    seed = torch.Generator().manual_seed(0)
    centre = torch.randn(CLASSES, dim, generator=seed)
    for start in range(0, rows, CHUNK):
        at = torch.arange(start, min(start + CHUNK, rows))
        z = centre[at % CLASSES] + torch.randn(len(at), dim, generator=seed)
        yield [f"/images/{row:09d}.jpg" for row in at.tolist()], z


def measure(name: str, rows: int, dim: int, folder: Path) -> dict[str, Any]:
    """Fill a store, open it, search it; this process is the store's own."""
    import torch
    from measurement import memory_held

    from iaa.gallery.file_store import FileStore
    from iaa.gallery.gallery import Gallery
    from iaa.gallery.listing import Listing
    from iaa.gallery.milvus_client import MilvusCollection
    from iaa.gallery.milvus_store import MilvusStore
    from iaa.gallery.sources import Sources
    from iaa.gallery.store import Header, Store

    torch.set_num_threads(os.cpu_count() or 1)
    store: Store = FileStore(folder / "gallery.safetensors")
    if STORES[name] is not None:
        collection = MilvusCollection(str(folder / "gallery.db"), "gallery")
        store = MilvusStore(collection, folder / "parts", dim, STORES[name])
    ids = [id for part, _ in chunks(rows, dim) for id in part]
    listing = Listing(ids, [f"class {row % CLASSES}" for row in range(rows)], ["test"] * rows)
    header = Header({"name": "benchmark"}, Sources.imported(), {}, {})
    with store.lock():
        filled, _ = timed(lambda: store.write(header, listing, chunks(rows, dim), kept=None))
    opened, snapshot = timed(store.read)
    assert snapshot is not None
    gallery = Gallery(snapshot, store.name)
    queries = torch.cat([z[:1] for _, (_, z) in zip(range(SINGLE), chunks(rows, dim), strict=False)])
    queries = queries + 0.3 * torch.randn(queries.shape, generator=torch.Generator().manual_seed(1))
    gallery.search(queries[:1], top=TOP)
    label = next(iter(gallery.classes))
    return {
        "fill_seconds": filled,
        "open_seconds": opened,
        "query_seconds": median(lambda query: gallery.search(query, top=TOP), queries),
        "query_in_class_seconds": median(lambda query: gallery.search(query, top=TOP, label=label), queries),
        "recall_at_10": snapshot.index().get("recall_at_10", 1.0),
        "peak_megabytes": memory_held(at_most=True) / 2**20,
        "disk_megabytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20,
    }


def timed(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds on the clock and of the processor, all threads together, and what the work returned."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return {"clock": time.perf_counter() - clock, "cpu": time.process_time() - processor}, result


def median(search: Callable[[Any], Any], queries: Any) -> dict[str, float]:
    """The middle of single queries."""
    times = [timed(functools.partial(search, query[None]))[0] for query in queries]
    return {kind: sorted(one[kind] for one in times)[len(times) // 2] for kind in ("clock", "cpu")}


def page(results: dict[str, Any]) -> str:
    """The table as Markdown, with what it was measured on."""
    columns = {
        "fill_seconds": ("fill (s)", 1, ",.1f"),
        "open_seconds": ("open (s)", 1, ",.1f"),
        "query_seconds": ("query (ms)", 1000, ",.1f"),
        "query_in_class_seconds": ("query in a class (ms)", 1000, ",.1f"),
        "recall_at_10": ("recall at 10", 1, ".3f"),
        "peak_megabytes": ("peak memory (MB)", 1, ",.0f"),
        "disk_megabytes": ("on disk (MB)", 1, ",.0f"),
    }
    about, machine = results["about"], results["about"]["machine"]
    lines = [
        "# Stores of a gallery side by side",
        "",
        f"{results['rows']:,} vectors of {results['dim']} numbers in {CLASSES:,} classes, top {TOP}; medians "
        f"of {SINGLE} single queries. Written by `benchmarks/stores.py` on {machine['cpu']}, "
        f"{machine['cores']} cores with a load of {results['load']:.1f} before the start, {about['date']}, "
        f"commit {about['commit']}.",
        "Times are on the clock / of the processor: on a busy machine the second is the one to compare.",
        "Milvus Lite is the embedded database, in pure Python; it says little about a Milvus server. Filling "
        "includes building the index and measuring its recall.",
        "",
        "| store | " + " | ".join(title for title, _, _ in columns.values()) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name, values in results["stores"].items():
        cells = (_cell(values[key], scale, form) for key, (_, scale, form) in columns.items())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(value: Any, scale: int, form: str) -> str:
    numbers = value.values() if isinstance(value, dict) else [value]
    return " / ".join(format(scale * number, form) for number in numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--out", type=Path, default=HERE / "stores.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.stores[0], args.rows, args.dim, Path(args.child))))
        return
    from measurement import environment

    about = environment("torch", "pymilvus", "milvus-lite")
    results = {"about": about, "rows": args.rows, "dim": args.dim, "load": os.getloadavg()[0], "stores": {}}
    for name in args.stores:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, __file__, "--rows", str(args.rows), "--dim", str(args.dim)]
            words += ["--stores", name, "--child", folder]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        results["stores"][name] = json.loads(done.stdout.splitlines()[-1])
        print(name, results["stores"][name], flush=True)
        args.out.write_text(json.dumps(results, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(page(results))


if __name__ == "__main__":
    main()
