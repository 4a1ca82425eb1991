"""Train the arms of an experiment: one configuration with some fields changed, over equal seeds."""

import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from iaa.analysis.experiments import Experiment, mean_scores
from iaa.analysis.regression import regression_note, untrained_rows
from iaa.cli.cmd_train import log_to_stderr
from iaa.cli.config_options import changed
from iaa.config import Config
from iaa.presets import departures


@dataclass(frozen=True)
class ExperimentOptions:
    """What is trained."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    seeds: int = 3
    """Number of seeds, counted from --seed."""
    jobs: int = 1
    """Runs at a time, each in a process of its own."""
    out: Path | None = None
    """Directory of the experiment; one below --run.out if not given."""
    quiet: bool = False
    """Show no progress."""


class PlannedRun(NamedTuple):
    """One arm with one seed, and its run directory if there is one already."""

    arm: str
    seed: int
    config: Config
    folder: Path | None


@dataclass(frozen=True)
class RunOutcomes:
    """What finished runs measured, and where they come from."""

    scores: dict[str, dict[int, dict[str, dict[str, float]]]]
    """Percent by arm, seed, test set and metric."""
    untrained: dict[str, dict[str, dict[str, float]]]
    """Percent by row, test set and metric, measured before training by the first run that did."""
    training_seconds: dict[str, list[float]]
    runs: dict[str, list[str]]
    commits: list[str]
    versions: dict[str, str | None]
    machine: dict[str, Any]

    def warnings(self, experiment: Experiment) -> list[str]:
        """A sentence for every arm and test set whose scores training lowered."""
        notes = (
            regression_note(mean_scores(row, test), untrained_rows(self.untrained, test), name=row.arm)
            for test in experiment.rows[0].scores
            for row in experiment.rows
        )
        return [note for note in notes if note]

    @property
    def origin(self) -> str:
        """Commit, versions and machine in one line."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items() if number)
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return f"Commit {', '.join(self.commits) or 'unknown'}; {versions}; {machine}."


def experiment_name(arguments: list[str], config: Config) -> str:
    """A name for the first argument: that of a preset, or of the folder of a run or configuration."""
    if not arguments or arguments[0].startswith("-"):
        return config.data.partition(":")[0]
    path = Path(arguments[0])
    return path.resolve().parent.name if path.name == "config.json" else path.name


def run_experiment(
    options: ExperimentOptions, arms: Mapping[str, Mapping[str, Any]], home: Path
) -> tuple[dict[str, Config], RunOutcomes]:
    """Train every arm with every seed, if that is not done yet; the configurations and the outcomes."""
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {options.seeds}")
    if options.config.augment.copies == 0:
        raise ValueError(
            "augment.copies is 0: every arm would be a baseline; leave it out, or give 1 or more"
        )
    configs = {name: changed(options.config, changes) for name, changes in arms.items()}
    seeds = list(range(options.config.seed, options.config.seed + options.seeds))
    return configs, read_outcomes(train_arms(home, configs, seeds, quiet=options.quiet, jobs=options.jobs))


def train_arms(
    home: Path, configs: Mapping[str, Config], seeds: list[int], *, quiet: bool, jobs: int = 1
) -> dict[str, dict[int, Path]]:
    """The finished run of every arm and seed; finished runs are kept, interrupted ones continue.

    Trains seed by seed, so that early results can be paired. Other runs in the way are refused at once.
    """
    from iaa.runs import Run

    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    first = next(iter(configs)), seeds[0]
    plan = [_planned(home, config, arm, seed, first) for seed in seeds for arm, config in configs.items()]
    folders: dict[str, dict[int, Path]] = {arm: dict.fromkeys(seeds, home) for arm in configs}
    missing = []
    for run in plan:
        if run.folder is not None and Run(run.folder).finished:
            folders[run.arm][run.seed] = run.folder
        else:
            missing.append(run)
    start = time.monotonic()
    try:
        finished = _in_turn(missing, quiet) if jobs == 1 else _in_parallel(missing, jobs)
        for number, (run, folder) in enumerate(finished, 1):
            folders[run.arm][run.seed] = folder
            if not quiet and number < len(missing):
                minutes = (time.monotonic() - start) / number * (len(missing) - number) / 60
                print(f"{number} of {len(missing)} runs done, about {minutes:.0f} min left", flush=True)
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(f"stopped; the same command continues in {home}") from stopped
    return folders


def _in_turn(plan: list[PlannedRun], quiet: bool) -> Iterator[tuple[PlannedRun, Path]]:
    for number, run in enumerate(plan, 1):
        if not quiet:
            print(f"run {number} of {len(plan)}: {run.arm}, seed {run.seed}", flush=True)
        yield run, _train(run, quiet)


def _in_parallel(plan: list[PlannedRun], jobs: int) -> Iterator[tuple[PlannedRun, Path]]:
    """Train in processes that share the cores; whatever stops this stops them, with a checkpoint."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_start_worker, initargs=(threads,))
    waiting = iter(plan)
    try:
        # never more than there are workers: the pool would still start queued runs after a stop
        working = {pool.submit(_train, run, True): run for run in islice(waiting, jobs)}
        while working:
            for future in wait(working, return_when=FIRST_COMPLETED).done:
                done, folder = working.pop(future), future.result()
                working |= {pool.submit(_train, run, True): run for run in islice(waiting, 1)}
                yield done, folder
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # a run ends after its step, with a checkpoint
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(threads: int) -> None:
    """In a worker: take a share of the cores, and watch the command that started it."""
    import torch

    torch.set_num_threads(threads)
    threading.Thread(target=_stop_with_command, daemon=True).start()


def _stop_with_command() -> None:
    """When the command is killed, end the run as well, with a checkpoint."""
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _train(planned: PlannedRun, quiet: bool) -> Path:
    from iaa.allocator import keep_freed_memory
    from iaa.train import train

    keep_freed_memory()
    log_to_stderr(quiet=True)
    try:
        folder = planned.folder
        run = train(resume=folder, quiet=quiet) if folder else train(planned.config, quiet=quiet)
        return run.path
    finally:
        command = multiprocessing.parent_process()
        if command is not None and not command.is_alive():
            os._exit(1)  # otherwise the worker would wait for its next run for ever


def _planned(home: Path, config: Config, arm: str, seed: int, first: tuple[str, int]) -> PlannedRun:
    untrained = config.run.untrained and (arm, seed) == first  # the same in every arm: measured once
    run = replace(config.run, out=str(home), name=f"{arm}-seed{seed}", untrained=untrained)
    config = _one_network(replace(config, seed=seed, run=run))
    return PlannedRun(arm, seed, config, _existing(home, config))


def _one_network(config: Config) -> Config:
    """With the network resolved; arms train one kind of head, which are not compared with others."""
    from iaa.training.defaults import resolve

    config = resolve(config)
    if config.network.head == "auto":
        config = resolve(replace(config, network=replace(config.network, head="linear")))
    return config


def _existing(home: Path, config: Config) -> Path | None:
    """The run of this arm and seed, finished or not, if there is one."""
    from iaa.runs import Run

    name = str(config.run.name)
    for run in Run.list(home):
        if run.name == name or re.fullmatch(re.escape(name) + r"-\d+", run.name):
            old, folder = run.config, run.path
            # which run measures the untrained rows depends on which was asked for first
            same = replace(old.run, out=str(home), untrained=config.run.untrained)
            differences = departures(config, replace(old, run=same), free=())
            if differences:
                raise ValueError(
                    f"{folder} is a run of another comparison ({'; '.join(differences)}): give another --out"
                )
            return folder
    return None


def read_outcomes(folders: Mapping[str, Mapping[int, Path]]) -> RunOutcomes:
    """Read the metrics and environment of finished runs, by arm and seed."""
    from iaa.runs import Run

    arms = {arm: {seed: Run(folder) for seed, folder in runs.items()} for arm, runs in folders.items()}
    every_run = [run for runs in arms.values() for run in runs.values()]
    environments = [run.environment for run in every_run]
    tables = [run.metrics["table"].items() for run in every_run]
    untrained = ({name: row for name, row in rows if not name.startswith("trained")} for rows in tables)
    return RunOutcomes(
        scores={arm: {seed: run.metrics["test"] for seed, run in runs.items()} for arm, runs in arms.items()},
        untrained=next(filter(None, untrained), {}),
        training_seconds={
            arm: [run.metrics["training_seconds"] for run in runs.values()] for arm, runs in arms.items()
        },
        runs={arm: [run.name for run in runs.values()] for arm, runs in arms.items()},
        commits=sorted({environment["commit"] for environment in environments if environment["commit"]}),
        versions=environments[-1]["versions"],
        machine=environments[-1]["machine"],
    )
