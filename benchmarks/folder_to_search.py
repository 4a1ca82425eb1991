"""From a folder of photos to a searchable model: `iaa train` and `iaa search` next to the same by hand.

    python benchmarks/folder_to_search.py --cub ROOT --tinyvit tiny_vit_5m_224_in22k.safetensors

By hand means timm's frozen network, torchvision's ImageFolder and a DataLoader, scores by PML's
AccuracyCalculator, and a faiss index that is asked for one photo. `iaa` does that and more: it compares the
frozen network with whitening and a trained head on held-out classes, and writes model, scores and report.
Each side runs in a process of its own with the same photos, test classes and weights; memory is the largest
sum of the resident memory of the process and all its children (pages that workers share count in each).
Results go into `folder_to_search.json` next to this file, and from there into `folder_to_search.md`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from markdown_tables import grid
from measurement import HERE, environment, write

BACKBONES = ("lite0", "tinyvit")
TEST_EVERY = 5
"""Every fifth class is a test class."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cub", type=Path, required=True, help="folder that holds CUB_200_2011")
    parser.add_argument("--tinyvit", type=Path, required=True, help="weights of timm's tiny_vit_5m_224")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--each", type=int, default=20, help="photos of every class")
    parser.add_argument("--out", type=Path, help="folder for the results instead of that of this script")
    parser.add_argument("--quick", action="store_true", help="10 classes of 6 photos, to see that it runs")
    words = parser.parse_args()
    if words.quick:
        words.classes, words.each = 10, 6
    if not words.tinyvit.is_file():
        raise SystemExit(f"there are no weights at {words.tinyvit}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        photos, query = make_folder(words.cub, Path(folder) / "photos", words.classes, words.each)
        for backbone in BACKBONES:
            weights = str(words.tinyvit) if backbone == "tinyvit" else ""
            print(f"{backbone}: by hand", file=sys.stderr)
            by_hand = [str(HERE / "folder_by_hand.py"), str(photos), str(query), weights]
            rows.append({"backbone": backbone, "side": "by hand", **measured(by_hand, Path(folder))})
            print(f"{backbone}: iaa", file=sys.stderr)
            rows.append({"backbone": backbone, "side": "iaa", **iaa(photos, query, weights, Path(folder))})
    result = {"photos": words.classes * words.each, "classes": words.classes, "rows": rows}
    result |= environment("torch", "timm", "pytorch-metric-learning", "faiss-cpu")
    if words.out is None:
        write("folder_to_search", result)
    else:
        (words.out / "folder_to_search.json").write_text(json.dumps(result, indent=2) + "\n")
    text = page(result)
    ((words.out or HERE) / "folder_to_search.md").write_text(text)
    print(text)


def make_folder(cub: Path, root: Path, classes: int, each: int) -> tuple[Path, Path]:
    """Links to photos below ``train`` and ``test``, and one more photo of a test class to ask for."""
    found = [path for path in sorted((cub / "CUB_200_2011" / "images").glob("*")) if path.is_dir()]
    step = max(len(found) // classes, 1)
    query = None
    for number, source in enumerate(found[::step][:classes]):
        part = "test" if number % TEST_EVERY == 0 else "train"
        photos = sorted(source.glob("*.jpg"))
        for photo in photos[:each]:
            target = root / part / source.name / photo.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(photo.resolve())
        if part == "test" and query is None and len(photos) > each:
            query = photos[each]
    if query is None:
        raise SystemExit(f"no test class of {cub} has more than {each} photos")
    return root, query


def iaa(photos: Path, query: Path, weights: str, folder: Path) -> dict[str, Any]:
    """`iaa train` and one `iaa search`, with the scores of the run."""
    runs = folder / ("runs-tinyvit" if weights else "runs-lite0")
    network = ["--network.weights", weights] if weights else ["--model", "lite0"]
    command = [
        "-m",
        "iaa",
        "train",
        "--data",
        f"folder:{photos}",
        "--run.out",
        str(runs),
        "--run.name",
        "run",
    ]
    trained = measured([*command, *network, "--quiet"], folder)
    searched = measured(["-m", "iaa", "search", str(runs / "run"), str(query), "--json"], folder)
    metrics = json.loads((runs / "run" / "metrics.json").read_text())
    answer = searched.pop("output")["queries"][0]["hits"][0]
    return {
        "seconds": trained["seconds"] + searched["seconds"],
        "train_seconds": trained["seconds"],
        "search_seconds": searched["seconds"],
        "memory": max(trained["memory"], searched["memory"]),
        "output": {
            "model": metrics["ladder"]["chosen"],
            "R@1": metrics["test"]["test"]["R@1"],
            "MAP@R": metrics["test"]["test"]["MAP@R"],
            "frozen": metrics["table"]["frozen"]["test"],
            "found": answer["label"],
        },
    }


def measured(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Seconds, largest memory in bytes and the JSON that a process prints last, if it prints any."""
    peak, done = 0, threading.Event()
    began = time.perf_counter()
    with open(folder / "output", "w+b") as output, open(folder / "errors", "w+b") as errors:
        process = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=errors)

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.1):
                peak = max(peak, tree_memory(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = process.wait()
        seconds = time.perf_counter() - began
        done.set()
        watcher.join()
        output.seek(0)
        errors.seek(0)
        text, problems = output.read().decode(), errors.read().decode()
    if code:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{problems[-2000:]}")
    start = text.find("{")
    return {"seconds": seconds, "memory": peak, "output": json.loads(text[start:]) if start >= 0 else None}


def tree_memory(root: int) -> int:
    """Resident bytes of a process and everything below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended meanwhile
                continue
    family, total = {root}, 0
    while len(family) < len(family := family | {pid for pid, parent in parents.items() if parent in family}):
        pass
    for pid in family:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def page(result: dict[str, Any]) -> str:
    """The table in Markdown."""
    machine = result["machine"]
    head = ["network", "", "seconds", "peak memory, GiB", "R@1", "MAP@R", "model"]
    rows = []
    for row in result["rows"]:
        output, seconds = row["output"], f"{row['seconds']:.0f}"
        if "train_seconds" in row:
            seconds += f" ({row['train_seconds']:.0f} train, {row['search_seconds']:.0f} search)"
        scores = [f"{output[metric]:.1f}" for metric in ("R@1", "MAP@R")]
        memory = f"{row['memory'] / 2**30:.1f}"
        rows.append([row["backbone"], row["side"], seconds, memory, *scores, output["model"]])
    lines = [
        "# From a folder to a searchable model",
        "",
        f"{result['photos']:,} photos of {result['classes']} classes (CUB-200-2011), every fifth class for "
        "the test. By hand: timm's frozen network, PML's AccuracyCalculator and a faiss index. `iaa`: "
        "`iaa train` with its comparison of heads and its report, then `iaa search` for one photo.",
        "",
        *grid(head, rows),
        f"{machine['cpu']}, {machine['cores']} cores, commit {result['commit']}, {result['date']}; "
        "`python benchmarks/folder_to_search.py`.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
