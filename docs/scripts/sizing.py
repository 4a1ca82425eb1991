"""The sizing table of "When one machine is not enough", computed from the assumptions below.

python docs/scripts/sizing.py
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "scaling.md"
MARKS = "<!-- sizing -->", "<!-- end of sizing -->"
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
DIM = 512
NODE_GIB = 64
USABLE = 0.7
"""Share of a node's memory that holds vectors; the rest is for the system, queries and growth."""
SCAN_GIB_PER_SECOND = 10
"""Memory bandwidth that an exact scan of one query can use on one node."""
METADATA = 8 + 8 + 16 + 120
"""Bytes per image next to its vector: id, label, date and size of the file, its path."""
IMAGES_PER_SECOND = 30
"""What one CPU node embeds; one accelerator does 20 to 50 times as much."""
COMFORT_SECONDS = 0.5
"""Longest scan that still feels immediate."""


@dataclass(frozen=True)
class Kind:
    """A way to hold vectors: its bytes per vector, and whether every query reads all of them."""

    name: str
    bytes_per_vector: float
    scans: bool = False


KINDS = (
    Kind("exact, float32", 4 * DIM, scans=True),
    Kind("HNSW, float32", 4 * DIM + 2 * 32 * 4),  # 32 links per vector on the lowest layer, both ways
    Kind("IVF, 8 bits per number", DIM + 8),
    Kind("IVF-PQ, 64 bytes", 64 + 8),
)


def nodes(count: int, kind: Kind) -> int:
    """Machines whose memory holds all vectors."""
    return max(1, -(-int(count * kind.bytes_per_vector) // int(NODE_GIB * USABLE * 2**30)))


def advice(count: int) -> str:
    """The smallest set-up that holds all vectors and answers at once."""
    exact = KINDS[0]
    seconds = count * exact.bytes_per_vector / 2**30 / SCAN_GIB_PER_SECOND
    if nodes(count, exact) == 1 and seconds <= COMFORT_SECONDS:
        return "the local file, exact search"
    if nodes(count, KINDS[1]) == 1:
        return "the local file or Milvus, HNSW"
    return "a Milvus cluster, HNSW or IVF-PQ"


def table() -> str:
    """The table in Markdown, and the assumptions it rests on."""
    head = [
        "images",
        *(f"{kind.name}" for kind in KINDS),
        "paths and labels",
        "to embed on one CPU node",
        "use",
    ]
    rows = []
    for count in SIZES:
        cells = [f"{count:,}"]
        for kind in KINDS:
            several = nodes(count, kind)
            cells.append(
                f"{_size(count * kind.bytes_per_vector)}" + (f", {several} nodes" if several > 1 else "")
            )
        rows.append([*cells, _size(count * METADATA), _time(count / IMAGES_PER_SECOND), advice(count)])
    lines = [head, ["---"] * len(head), *rows]
    per_node = ", ".join(
        f"{int(NODE_GIB * USABLE * 2**30 / kind.bytes_per_vector / 1e6):,} million ({kind.name})"
        for kind in KINDS
    )
    return "\n".join(
        [
            *(f"| {' | '.join(line)} |" for line in lines),
            "",
            f"Assumed: {DIM} dimensions; nodes of {NODE_GIB} GiB, {USABLE:.0%} of which hold vectors; "
            f"{SCAN_GIB_PER_SECOND} GiB/s of memory bandwidth for an exact scan, which should take at most "
            f"{COMFORT_SECONDS} s; {METADATA} bytes per image for its path, label and stamps; "
            f"{IMAGES_PER_SECOND} images a second embedded by one CPU node. A node then holds {per_node}.",
            "",
        ]
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _time(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


def page(text: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n{table()}{MARKS[1]}{rest.partition(MARKS[1])[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
