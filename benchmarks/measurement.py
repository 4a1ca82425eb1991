"""What a measurement was made on, and how contenders take turns."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def environment(*packages: str) -> dict[str, Any]:
    """Machine, versions and commit, which is dirty if code has changed since; results may have."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(HERE.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "benchmarks/*.py")
    commit = git("rev-parse", "--short=10", "HEAD") + "-dirty" * bool(changed)
    return {
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "commit": commit or "unknown",
        "date": time.strftime("%Y-%m-%d"),
    }


def take_turns(contenders: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """The shortest time of each in seconds: they run one after the other in every round."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def timed_turns(contenders: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds of each in every round; who comes first alternates."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in list(contenders.items())[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def spread(values: Iterable[float]) -> dict[str, float]:
    """Smallest, middle and largest."""
    ordered = sorted(values)
    return {"min": ordered[0], "median": ordered[len(ordered) // 2], "max": ordered[-1]}


def ratio(values: Iterable[float], over: Iterable[float]) -> dict[str, float]:
    """The spread of values over others of the same rounds."""
    return spread(value / other for value, other in zip(values, over, strict=True))


def memory_held(*, at_most: bool = False) -> int:
    """Bytes this process holds now, or at most has held since it began.

    Read from Linux itself: what ``getrusage`` calls the peak is inherited from the parent process.
    """
    field = "VmHWM:" if at_most else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status tells no {field}")


def write(name: str, result: Mapping[str, Any]) -> None:
    """Keep a result beside the script that made it."""
    (HERE / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
