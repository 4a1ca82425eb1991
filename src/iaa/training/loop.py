"""The training loop around Algorithm 1: run directory, lock, log, checkpoints, signals and display."""

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType

import torch
from torch import Tensor

from iaa.progress import working
from iaa.run_records import LogFile
from iaa.runs import BEST, CHECKPOINT, ENVIRONMENT, KEPT_WEIGHTS, LOG, Run
from iaa.training import checkpoint, distributed, scoring
from iaa.training.checkpoint import Position
from iaa.training.epoch_totals import EpochTotals
from iaa.training.finalize import finalize, save_module
from iaa.training.loggers import attach
from iaa.training.sanity import Sanity
from iaa.training.setup import Task, list_unreadable
from iaa.training.signals import Interrupts
from iaa.training.workload import workload

BACKWARD = 3
"""An image with gradients takes about as long as three without, until both have been measured."""
_log = logging.getLogger("iaa.train")


class TrainingLoop:
    """What a run keeps track of while it is trained; a context that releases everything at its end."""

    def __init__(self, task: Task, run: Run, position: Position, *, quiet: bool = False) -> None:
        self.task, self.run, self.position, self._quiet = task, run, position, quiet
        self.leads = task.fabric.is_global_zero
        self.totals = position.totals
        self.sanity = Sanity(task.config, warns=self.leads)
        self.steps = len(task.sampler)
        """Steps of an epoch."""
        val = task.source.dataset.part("val")
        self._validation = (
            (val, scoring.rank_batches(task, val, task.preprocessing, again=True)) if len(val) else None
        )
        self._listed = len(task.source.unreadable)
        self._seconds_before = position.seconds
        self._began = self._saved = time.monotonic()
        self._stack = ExitStack()

    def __enter__(self) -> "TrainingLoop":
        config, position, quiet = self.task.config, self.position, self._quiet or not self.leads
        if self.leads:
            _log.info("%s\n%s", self.task.describe(), self.run.path)
        with ExitStack() as stack:
            stack.enter_context(_full_disk(self.run))
            file = self.run / LOG if self.leads else None
            self._log = stack.enter_context(LogFile(file, keep=position.log_bytes))
            self._interrupts = stack.enter_context(Interrupts(self.task.fabric))
            self._send = stack.enter_context(attach(config, self.run, self.task.fabric))
            work = workload(self.task, epoch=position.epoch, step=position.step)
            todo = {"step": work.steps, "image": sum(work.images.values())}
            step = BACKWARD * config.batch.classes * config.batch.per_class / self.task.fabric.world_size
            self._bar = stack.enter_context(working(todo, {"step": step, "image": 1.0}, quiet=quiet))
            self.task.on_images = partial(self._bar.advance, "image")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def epochs(self) -> Iterator[tuple[int, int]]:
        """The epochs still to do, each with the number of its steps that are done."""
        for epoch in range(self.position.epoch, self.task.config.epochs):
            start = self.position.step
            if start == 0:
                self.totals = EpochTotals()
            yield epoch, start

    def batches(self, epoch: int, start: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Step, images and labels of the batches still to do."""
        self.task.sampler.set_epoch(epoch, start=start)
        for step, (images, labels, _) in enumerate(self.task.batches, start):
            yield step, self.task.put(images), labels

    def show(self, text: str) -> None:
        """Show what happens between steps."""
        self._bar.show(text)

    def end_step(self, epoch: int, step: int, loss: float, images: int) -> None:
        """Log a step; save a checkpoint if it is time, and stop if that was requested."""
        criterion, config = self.task.criterion, self.task.config
        positives, negatives = criterion.synthetic_positives, criterion.synthetic_negatives
        self.totals.add(loss, images)
        self._log.add(
            epoch=epoch,
            step=step,
            loss=loss,
            positives=criterion.num_positives,
            negatives=criterion.num_negatives,
            synthetic_positives=positives,
            synthetic_negatives=negatives,
        )
        text = f"epoch {epoch + 1}/{config.epochs}  loss {loss:.3f}  "
        text += f"synthetic {(positives + negatives) / 2:.0%}  {self.totals.speed:,.0f} images/s"
        self._bar.advance("step", text=text)
        overdue = time.monotonic() - self._saved > 60 * config.run.checkpoint_minutes
        if self._interrupts.requested or overdue:
            self._save(epoch, step + 1)
            self._interrupts.stop(self.run)

    def end_epoch(self, epoch: int) -> None:
        """Validate if it is time, log the epoch and save a checkpoint."""
        config = self.task.config
        distributed.share_buffers(self.task.network)
        row = self.totals.row()
        last = epoch + 1 == config.epochs
        if self._validation and ((epoch + 1) % config.run.validate_every == 0 or last):
            row["val"] = self._validate(epoch)
        if self.leads and config.run.keep_every and (epoch + 1) % config.run.keep_every == 0:
            with self.task.scored_weights() as network:
                save_module(self.run, KEPT_WEIGHTS.format(epoch + 1), network)
        self._log.add(epoch=epoch, **row)
        self._send(epoch, row)
        self.totals = EpochTotals()
        self._save(epoch + 1, 0)

    def finish(self) -> None:
        """Score the run and write its results."""
        self.show("scoring")
        finalize(self.task, self.run, self.position)
        list_unreadable(self.task.source, self._listed)

    def _save(self, epoch: int, step: int) -> None:
        position = self.position
        position.epoch, position.step, position.totals = epoch, step, self.totals
        position.seconds = self._seconds_before + time.monotonic() - self._began
        position.log_bytes = self._log.flush()
        if self.leads:
            checkpoint.save(self.run, self.task, position)
        self._saved = time.monotonic()

    def _validate(self, epoch: int) -> dict[str, float]:
        """Scores on the held-out classes; the best weights so far are saved."""
        assert self._validation is not None
        self.show("validation")
        part, batches = self._validation
        with self.task.scored_weights() as network:
            data = scoring.embeddings(self.task, network, part, batches=batches)
            scores = scoring.scores(data, part.ks, split="val")
            if scores["MAP@R"] > self.position.best:
                self.position.best, self.position.best_epoch = scores["MAP@R"], epoch
                if self.leads and self.task.config.run.select == "best":
                    save_module(self.run, BEST, network)
        return scores


@contextmanager
def open_run(task: Task, resume: Run | None) -> Iterator[Run]:
    """The run directory, new or resumed, locked by the first rank; all ranks fail if that one does."""
    fabric, config = task.fabric, task.config
    with ExitStack() as stack:
        path, problem = "", None
        if fabric.is_global_zero:
            try:
                run = Run(resume.path if resume else Run.create(config, data=task.source), data=task.source)
                stack.enter_context(run.lock())
                path = str(run.path)
            except OSError as error:
                problem = error
        path, message = fabric.broadcast((path, None if problem is None else str(problem)))
        if message is not None:
            raise problem or OSError(message)
        yield Run(path, data=task.source)


@contextmanager
def recorded_threads(run: Run | None) -> Iterator[None]:
    """Compute with as many threads as the run began with: another number sums in another order."""
    before = torch.get_num_threads()
    known = run is not None and (run / ENVIRONMENT).is_file()
    recorded = run.environment.get("threads") if run is not None and known else None
    if not isinstance(recorded, int) or not 1 <= recorded <= 4096 or recorded == before:
        yield
        return
    torch.set_num_threads(recorded)
    if torch.get_num_threads() != recorded or recorded > (os.cpu_count() or 1):
        _log.warning(
            "this run began with %d threads, here are %d cores: its results may differ in the last digits",
            recorded,
            os.cpu_count() or 1,
        )
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _full_disk(run: Run) -> Iterator[None]:
    """Report a full disk in one line that says how to continue."""
    try:
        yield
    except OSError as error:
        codes = (errno.ENOSPC, errno.EDQUOT)
        causes = (error, error.__cause__)
        if not any(isinstance(cause, OSError) and cause.errno in codes for cause in causes):
            raise
        exists = (run / CHECKPOINT).exists()
        state = "the last checkpoint is intact" if exists else "there is no checkpoint yet"
        raise OSError(
            f"the disk of {run.path} is full: {state}; make room, "
            f"then continue with `iaa train --resume {run.path}`"
        ) from error
