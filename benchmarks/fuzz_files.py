"""Damaged files against every reader: each must be refused in one line or read; a traceback is a failure.

    python benchmarks/fuzz_files.py --files 2000      # about a minute; counts go to fuzz_files.json

Mutations are seeded: bytes flipped, cut, repeated, inserted, numbers made huge, text nested deeply. A file
that still carries its checksum must never be accepted with other content.
"""

import argparse
import json
import random
import resource
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
EXPECTED = (ValueError, OSError, ImportError)
"""What readers may raise: the command line prints these in one line."""
MEMORY = 6 * 2**30
"""Address space the process may use: a small file must not take gigabytes."""


def samples(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object], bool]]:
    """A valid file of every kind by name, its reader, and whether a checksum protects all its content."""
    import numpy as np
    import torch

    from iaa.data.custom import table
    from iaa.files import read_json, write_json, write_tensors
    from iaa.models.weights import read
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.shards import Shards

    generator = torch.Generator().manual_seed(0)
    data = Embeddings(
        torch.randn(40, 8, generator=generator),
        torch.arange(40) // 4,
        [f"images/{row}.jpg" for row in range(40)],
        {label: f"class {label}" for label in range(10)},
        meta={"model": "convnet", "data": {"rows": 40}},
        sequence=[f"video {row // 8}" for row in range(40)],
    )
    kinds: dict[str, tuple[Path, Callable[[Path], object], bool]] = {}
    for ending, protected in ((".safetensors", True), (".npz", False), (".npy", False), (".parquet", False)):
        data.save(folder / f"embeddings{ending}")
        kinds[f"embeddings{ending}"] = folder / f"embeddings{ending}", Embeddings.load, protected
    np.savez_compressed(folder / "packed.npz", z=data.z.numpy(), labels=data.labels.numpy())
    kinds["packed.npz"] = folder / "packed.npz", Embeddings.load, False
    kinds["labels.csv"] = (
        folder / "embeddings.csv",
        lambda path: Embeddings.load(path.with_suffix(".npy")),
        False,
    )
    write_tensors(folder / "weights.safetensors", {"a.weight": torch.randn(9, 4), "a.bias": torch.randn(9)})
    kinds["weights.safetensors"] = folder / "weights.safetensors", read, True
    torch.save({"state_dict": {"a": torch.randn(9, 4)}}, folder / "weights.pth")
    kinds["weights.pth"] = folder / "weights.pth", read, False
    write_json(folder / "metrics.json", {"test": {"R@1": 61.5}, "log": [1, 2, {"epoch": 3}]})
    kinds["json"] = folder / "metrics.json", read_json, False
    lines = ["path,label,split,is_query,is_gallery,x_1,y_1,x_2,y_2,sequence"]
    lines += [f"{i}.jpg,{i % 9},{'train' if i < 20 else 'test'},1,1,0,0,9,9,v{i // 4}" for i in range(40)]
    (folder / "table.csv").write_text("\n".join(lines))
    kinds["table.csv"] = folder / "table.csv", lambda path: table(path, root=None, test_share=0.2), False
    shards = Shards(folder / "shards", {"model": "convnet"}, 40)
    shards.add(0, 40, torch.arange(40), data.z, [])
    shards.release()

    def reopen(path: Path) -> object:
        again = Shards(path.parent, {"model": "convnet"}, 40)
        again.release()
        if not again.done:
            raise ValueError("made again")
        return again.collect()

    kinds["shard"] = next((folder / "shards").glob("*.safetensors")), reopen, True
    return kinds | run_samples(folder)


def run_samples(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object], bool]]:
    """The same for the files of a run, of its gallery, and of the gallery exported."""
    import iaa
    from iaa.config import BatchOptions, Config, Images, Network, RunOptions
    from iaa.gallery.file_store import FileStore
    from iaa.gallery.transfer import export_vectors
    from iaa.gallery.vector_files import open_vectors
    from iaa.runs import Run
    from iaa.training.checkpoint import restore
    from iaa.training.setup import assemble, launch

    make_images(folder / "images", classes=8, each=6)
    config = Config(
        data=f"folder:{folder / 'images'}",
        model="convnet",
        epochs=1,
        device="cpu",
        images=Images(size=16, workers=0),
        network=Network(dim=8),
        batch=BatchOptions(classes=4, per_class=3),
        run=RunOptions(out=str(folder), name="run", untrained=False, logger="none"),
    )
    run = iaa.train(config, quiet=True)
    task = assemble(run.config, launch(run.config), known=run.classes)
    model = iaa.load(run)
    gallery = iaa.Gallery.open(model)

    def vectors(path: Path) -> object:
        file = open_vectors(path)
        file.check()
        return file.listing.ids, file.listing.classes, file.meta

    kinds: dict[str, tuple[Path, Callable[[Path], object], bool]] = {
        "run: config": (run / "config.json", lambda path: Run(path.parent).config, False),
        "run: metrics": (run / "metrics.json", lambda path: Run(path.parent).metrics, False),
        "run: log": (run / "log.jsonl", lambda path: Run(path.parent).log, False),
        "run: environment": (run / "surroundings.json", lambda path: Run(path.parent).environment, False),
        "run: classes": (run / "classes.json", lambda path: Run(path.parent).classes, False),
        "run: weights": (
            run / "model.safetensors",
            lambda path: Run(path.parent).network().state_dict(),
            True,
        ),
        "run: statistics": (
            run / "statistics.safetensors",
            lambda path: vars(Run(path.parent).statistics),
            True,
        ),
        "run: checkpoint": (run / "checkpoint.safetensors", lambda path: restore(run, task), False),
        "gallery": (Path(gallery.name), lambda path: FileStore(path).read().data, True),
    }
    for ending in (".safetensors", ".parquet"):
        export_vectors(gallery, model, folder / f"exported{ending}")
        kinds[f"exported{ending}"] = folder / f"exported{ending}", vectors, ending == ".safetensors"
    return kinds


def make_images(root: Path, *, classes: int, each: int) -> None:
    """Images of noise."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    for label in range(classes):
        (root / f"c{label}").mkdir(parents=True)
        for number in range(each):
            pixels = random.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / f"c{label}" / f"{number}.png")


def mutate(content: bytes, chance: random.Random) -> bytes:
    """One to three random damages."""
    for _ in range(chance.randint(1, 3)):
        content = chance.choice(MUTATIONS)(content, chance)
    return content


def _at(content: bytes, chance: random.Random) -> int:
    """Half of all damage goes where headers usually are."""
    end = min(len(content), 400) if chance.random() < 0.5 else len(content)
    return chance.randrange(end) if end else 0


def flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content or b"\0")
    changed[_at(changed, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randint(0, len(content))]


def overwrite(content: bytes, chance: random.Random) -> bytes:
    at, size = _at(content, chance), chance.randint(1, 16)
    return content[:at] + chance.randbytes(size) + content[at + size :]


def insert(content: bytes, chance: random.Random) -> bytes:
    at = _at(content, chance)
    return content[:at] + chance.choice(FRAGMENTS) + content[at:]


def repeat(content: bytes, chance: random.Random) -> bytes:
    start = _at(content, chance)
    stop = min(len(content), start + chance.randint(1, 200))
    return content[:stop] + content[start:stop] * chance.randint(1, 20) + content[stop:]


def inflate(content: bytes, chance: random.Random) -> bytes:
    """A number in a header becomes a huge, negative or odd one."""
    digits = [i for i, byte in enumerate(content[:4000]) if 48 <= byte <= 57]
    if not digits:
        return flip(content, chance)
    at = chance.choice(digits)
    return content[:at] + chance.choice(NUMBERS) + content[at + 1 :]


MUTATIONS = (flip, flip, truncate, overwrite, insert, repeat, inflate)
NUMBERS = (b"9" * 12, b"9" * 25, b"-1", b"1e999", b"NaN", b"9" * 5000, b"0")
FRAGMENTS = (
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"\xff\xfe",
    b"\0" * 64,
    b"\n",
    b",",
    b'"',
    b"'" * 3,
    b"\r\n\r\n",
)


def run(files: int, *, seed: int = 0) -> dict[str, dict[str, int]]:
    """Counts by kind of file: accepted, refused, tracebacks, and accepted in spite of a checksum."""
    import torch

    chance = random.Random(seed)
    counts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        kinds = samples(Path(name))
        originals = {kind: path.read_bytes() for kind, (path, _, _) in kinds.items()}
        for kind, (path, reader, protected) in kinds.items():
            count: Counter[str] = Counter(accepted=0, refused=0, tracebacks=0, undetected=0)
            intact = reader(path)
            for _ in range(-(-files // len(kinds))):
                content = mutate(originals[kind], chance)
                path.write_bytes(content)
                try:
                    found = reader(path)
                    count["accepted"] += 1
                    if protected and b'"sha256"' in content and not same(found, intact, torch):
                        count["undetected"] += 1
                except EXPECTED as error:
                    count["refused"] += 1
                    if "\n" in str(error):
                        count["tracebacks"] += 1
                        print(f"{kind}: more than one line: {error}")
                except Exception:
                    count["tracebacks"] += 1
                    traceback.print_exc()
                path.write_bytes(originals[kind])
            counts[kind] = dict(count)
    return counts


def same(found, intact, torch) -> bool:
    if hasattr(found, "z"):
        columns = ("ids", "class_names", "split", "role", "meta", "sequence")
        equal = all(getattr(found, name) == getattr(intact, name) for name in columns)
        return equal and torch.equal(found.z, intact.z) and torch.equal(found.labels, intact.labels)
    if isinstance(found, dict):
        return found.keys() == intact.keys() and all(torch.equal(found[key], intact[key]) for key in found)
    if isinstance(found[0], list):
        return found == intact
    return all(torch.equal(a, b) for a, b in zip(found[:2], intact[:2], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "fuzz_files.json")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts = run(args.files, seed=args.seed)
    total = {key: sum(count[key] for count in counts.values()) for key in next(iter(counts.values()))}
    files = total["accepted"] + total["refused"] + total["tracebacks"]
    result = {"files": files, "seed": args.seed, "total": total, "by_kind": counts}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["total"]))
    return 1 if total["tracebacks"] or total["undetected"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
