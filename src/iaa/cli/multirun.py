"""Arms of a comparison or an ablation: the same configuration with some fields changed, over equal seeds."""

import json
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from iaa.cli.cmd_train import check_fields, log_to_stderr
from iaa.config import Config
from iaa.presets import departures


class Planned(NamedTuple):
    """One run: of an arm with a seed, and its directory if there is one already."""

    arm: str
    seed: int
    config: Config
    folder: Path | None


def name_of(words: list[str], config: Config) -> str:
    """What the first word of a command line is called: a preset, the folder of a run or configuration."""
    if not words or words[0].startswith("-"):
        return config.data.partition(":")[0]
    path = Path(words[0])
    return path.resolve().parent.name if path.name == "config.json" else path.name


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with some fields changed, such as ``{"augment.copies": 0}``."""
    fields: dict[str, Any] = json.loads(config.to_json())
    for key, value in changes.items():
        check_fields([f"--{key}"], also=())
        *groups, last = key.split(".")
        inside = fields
        for group in groups:
            inside = inside[group]
        was = inside.get(last)
        kind = (
            (list, tuple) if isinstance(was, list) else (int, float) if isinstance(was, float) else type(was)
        )
        if last not in inside or not (was is None or isinstance(value, kind)):
            raise ValueError(f"an arm must set a field to a value like {was!r}, got '{key}={value}'")
        inside[last] = value
    return Config.from_json(json.dumps(fields), source="an arm")


def train_arms(
    home: Path, configs: Mapping[str, Config], seeds: list[int], *, quiet: bool, jobs: int = 1
) -> dict[str, dict[int, Path]]:
    """The finished run of every arm and seed; what is there already is kept, what was interrupted continues.

    Seed by seed, so that what is there early can be paired. Runs of something else are refused at once.
    """
    from iaa.runs import Run

    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    first = next(iter(configs)), seeds[0]
    plan = [_planned(home, config, arm, seed, first) for seed in seeds for arm, config in configs.items()]
    folders: dict[str, dict[int, Path]] = {arm: dict.fromkeys(seeds, home) for arm in configs}
    missing = []
    for one in plan:
        if one.folder is not None and Run(one.folder).finished:
            folders[one.arm][one.seed] = one.folder
        else:
            missing.append(one)
    begun = time.monotonic()
    try:
        runs = _in_turn(missing, quiet) if jobs == 1 else _side_by_side(missing, jobs)
        for number, (one, folder) in enumerate(runs, 1):
            folders[one.arm][one.seed] = folder
            if not quiet and number < len(missing):
                minutes = (time.monotonic() - begun) / number * (len(missing) - number) / 60
                print(f"{number} of {len(missing)} runs done, about {minutes:.0f} min left", flush=True)
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(f"stopped; the same command continues in {home}") from stopped
    return folders


def _in_turn(plan: list[Planned], quiet: bool) -> Iterator[tuple[Planned, Path]]:
    for number, one in enumerate(plan, 1):
        if not quiet:
            print(f"run {number} of {len(plan)}: {one.arm}, seed {one.seed}", flush=True)
        yield one, _train(one, quiet)


def _side_by_side(plan: list[Planned], jobs: int) -> Iterator[tuple[Planned, Path]]:
    """Runs in processes of their own, which share the cores; what ends this ends them with a checkpoint."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_begin, initargs=(threads,))
    left = iter(plan)
    try:
        # never more than can be worked on: what waits in the pool's queue would still be begun after a stop
        working = {pool.submit(_train, one, True): one for one in islice(left, jobs)}
        while working:
            for future in wait(working, return_when=FIRST_COMPLETED).done:
                done, folder = working.pop(future), future.result()
                working |= {pool.submit(_train, one, True): one for one in islice(left, 1)}
                yield done, folder
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # a run ends behind its step, with a checkpoint
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int) -> None:
    """In a process of runs: its share of the cores, and an ear on the command that began it."""
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """When the command is killed, the run ends as well, with a checkpoint: nobody waits for it any more."""
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _train(one: Planned, quiet: bool) -> Path:
    from iaa.memory import keep_freed_memory
    from iaa.train import train

    keep_freed_memory()
    log_to_stderr(quiet=True)
    try:
        run = train(resume=one.folder, quiet=quiet) if one.folder else train(one.config, quiet=quiet)
        return run.path
    finally:
        command = multiprocessing.parent_process()
        if command is not None and not command.is_alive():
            os._exit(1)  # else it would wait for ever for what to do next


def _planned(home: Path, config: Config, arm: str, seed: int, first: tuple[str, int]) -> Planned:
    once = (arm, seed) == first  # what comes before training is the same in every arm
    run = replace(
        config.run, out=str(home), name=f"{arm}-seed{seed}", untrained=once and config.run.untrained
    )
    config = replace(config, seed=seed, run=run)
    return Planned(arm, seed, config, _existing(home, config))


def _existing(home: Path, config: Config) -> Path | None:
    """The run of this arm and seed, finished or not, if there is one."""
    from iaa.runs import Run

    name = str(config.run.name)
    for run in Run.list(home):
        if run.name == name or re.fullmatch(re.escape(name) + r"-\d+", run.name):
            old, folder = run.config, run.path
            # which run measures what comes before training depends on which were asked for first
            same = replace(old.run, out=str(home), untrained=config.run.untrained)
            other = departures(config, replace(old, run=same), free=())
            if other:
                raise ValueError(
                    f"{folder} is a run of another comparison ({'; '.join(other)}): give another --out"
                )
            return folder
    return None


def gather(folders: Mapping[str, Mapping[int, Path]]) -> dict[str, Any]:
    """What finished runs say: metrics by arm and seed, and where they come from."""
    from iaa.runs import Run

    around = [Run(folder).surroundings for runs in folders.values() for folder in runs.values()]
    read = {
        arm: {seed: Run(folder).metrics for seed, folder in runs.items()} for arm, runs in folders.items()
    }
    tables = [run["table"] for runs in read.values() for run in runs.values()]
    before = [{name: row for name, row in one.items() if not name.startswith("trained")} for one in tables]
    return {
        "metrics": read,
        "scores": {arm: {seed: run["test"] for seed, run in runs.items()} for arm, runs in read.items()},
        "untrained": next(filter(None, before), {}),
        "training_seconds": {
            arm: [run["training_seconds"] for run in runs.values()] for arm, runs in read.items()
        },
        "runs": {arm: [folder.name for folder in runs.values()] for arm, runs in folders.items()},
        "commits": sorted({one["commit"] for one in around if one["commit"]}),
        "versions": around[-1]["versions"],
        "machine": around[-1]["machine"],
    }
