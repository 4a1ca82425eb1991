"""`iaa embed` against timm and a DataLoader by hand (`photos_by_hand.py`): the first pass over new photos.

python benchmarks/embedding_speed.py [--quick]

Both sides start anew in every round and take turns, with the same network, size, batch and default threads.
Times are those of the whole process, from its start to the file it leaves; memory is that of the process and
its workers. Results go to benchmarks/embedding_speed.json; --quick runs little once and writes nothing.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from folder_to_search import measured
from measurement import HERE, environment, ratio, write
from photos_by_hand import make_photos

NETWORKS = ("tf_efficientnet_lite0", "tiny_vit_5m_224")
SIZE = 224


def measure(folder: Path, *, classes: int, rounds: int) -> dict[str, Any]:
    photos = folder / "photos"
    make_photos(photos, classes, 10)
    number, found = classes * 10, {}
    for network in NETWORKS:
        out = folder / "z.safetensors"
        hand = [str(HERE / "photos_by_hand.py"), "embed", str(photos), network, str(SIZE), str(out)]
        ours = f"-m iaa embed folder:{photos} --split all --model timm/{network} --no-pretrained".split()
        ours += ["--size", str(SIZE), "--out", str(out)]
        sides: dict[str, list[dict[str, Any]]] = {"by hand": [], "iaa": []}
        for _ in range(rounds):
            for side, words in (("by hand", hand), ("iaa", ours)):
                out.unlink(missing_ok=True)
                sides[side].append(measured(words, folder))
        seconds = {side: [row["seconds"] for row in rows] for side, rows in sides.items()}
        found[network] = {
            "iaa over by hand": ratio(seconds["by hand"], seconds["iaa"]),
            "images per second": {side: number / min(values) for side, values in seconds.items()},
            "peak memory, GiB": {
                side: max(row["memory"] for row in rows) / 2**30 for side, rows in sides.items()
            },
        }
        print(json.dumps({network: found[network]}, indent=2), file=sys.stderr)
    return {"photos": number, "pixels": SIZE, "rounds": rounds, **found}


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), classes=4 if quick else 60, rounds=1 if quick else 3)
    result = {"what": __doc__, **found, **environment("torch", "timm")}
    print(json.dumps(result, indent=2))
    if not quick:
        write("embedding_speed", result)


if __name__ == "__main__":
    main()
