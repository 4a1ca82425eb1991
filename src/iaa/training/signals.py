"""Ctrl-C, SIGTERM and SIGHUP end a run after a step, with a checkpoint; a second Ctrl-C ends it at once."""

import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iaa.errors import Stopped
from iaa.runs import Run
from iaa.training import distributed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """While this context is open, a signal only requests a stop, which is checked after every step."""

    def __init__(self, fabric: "Fabric") -> None:
        self._device, self._owner = fabric.device, os.getpid()
        self._signal = 0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        """Whether any rank was asked to stop; every rank must ask at every step."""
        if distributed.active():
            received = torch.tensor(self._signal, device=self._device)
            dist.all_reduce(received, op=dist.ReduceOp.MAX)
            self._signal = int(received)
        return self._signal > 0

    def stop(self, run: Run) -> None:
        """End the run if that was requested."""
        if self._signal:
            raise Stopped(f"stopped; continue with `iaa train --resume {run.path}`", self._signal)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a loader process, forked with this handler: its parent decides
            if number == signal.SIGTERM:
                os._exit(1)
            return
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = number
