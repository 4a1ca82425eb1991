"""Ctrl-C and a polite kill end a run behind a step, with a checkpoint; a second Ctrl-C ends it at once."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iaa.training import distributed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Within, a signal is a wish that is asked for after every step."""

    def __init__(self, fabric: "Fabric") -> None:
        self._device, self._owner = fabric.device, os.getpid()
        self._asked = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    @property
    def wanted(self) -> bool:
        """Whether any rank was asked to stop; every rank asks at every step."""
        if not distributed.active():
            return self._asked
        asked = torch.tensor(int(self._asked), device=self._device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        self._asked = bool(asked)
        return self._asked

    def stop_here(self, folder: Path) -> None:
        """End the run, if that was asked for."""
        if self._asked:
            raise KeyboardInterrupt(f"stopped; go on with `iaa train --resume {folder}`")

    def _ask(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a worker, forked with this handler: its parent decides
            if number == signal.SIGTERM:
                os._exit(1)
        elif self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
